"""The options of ``pliant up``, and the specification of the cluster that they ask for."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from pliant.client.client_errors import UsageError
from pliant.client.cluster.cluster_spec import SAVE_BEFORE_S, ClusterSpec, RemoteSpec
from pliant.client.cluster.node_sites_option import site_of_each_node
from pliant.client.terminal.number_arguments import bounded_int
from pliant.client.terminal.output import Parser
from pliant.core.support.plural import plural

#: Less would not leave a job time for a checkpoint, and the nodes time to end.
_MIN_SAVE_BEFORE_S = 30.0
_LOCAL_ONLY = ("nodes", "spares", "sites")
_REMOTE_ONLY = ("address", "interface", "node_dir")
_SSH_ONLY = ("key", "known_hosts")


def up_parser() -> Parser:
    """Return the parser of ``pliant up``."""
    parser = Parser(
        prog="pliant up",
        description="Start a cluster on this machine, or what is missing of it. Without options "
        "it is the one that this state directory had before. With --hosts or --inside-slurm, the "
        "nodes are on other hosts. Without --detach, the command stays, and Ctrl-C ends the "
        "cluster.",
        epilog="exit codes: 0 done, 1 it did not come up, 2 wrong usage, 130 Ctrl-C before it was",
    )
    parser.add_argument(
        "--nodes", type=bounded_int(1, 4096), metavar="N", help="node controllers (4)"
    )
    parser.add_argument(
        "--slots", type=bounded_int(1, 4096), metavar="N", help="processors of each node (4)"
    )
    parser.add_argument(
        "--sites",
        metavar="NAME:NODES,...",
        help="the nodes of each site, in order: strategies that place jobs on clusters take each "
        "site as a cluster (empty: all nodes are in one)",
    )
    parser.add_argument(
        "--spares",
        type=bounded_int(0, 4096),
        metavar="N",
        help="spare nodes besides, which take the place of nodes that are lost (0)",
    )
    parser.add_argument(
        "--most-processes",
        type=bounded_int(0, 1 << 30),
        metavar="N",
        help="a job with more processes on a node is ended (0: half of what the kernel allows)",
    )
    parser.add_argument("--strategy", metavar="NAME", help="how the server shares processors")
    parser.add_argument(
        "--strategy-option",
        action="append",
        metavar="NAME=VALUE",
        help="option of the strategy (repeatable)",
    )
    parser.add_argument("--transport", choices=("ofi", "ucx"), help="what MPI talks over")
    parser.add_argument("--config", metavar="FILE", help="configuration of the server (YAML)")
    parser.add_argument(
        "--dashboard", action="store_true", help="serve the live page, too: `pliant dashboard`"
    )
    parser.add_argument(
        "-d", "--detach", action="store_true", help="return when it is up (`pliant down` ends it)"
    )
    _add_remote_options(parser)
    add_state_dir(parser)
    return parser


def add_state_dir(parser: Parser) -> None:
    """Add the option ``--state-dir``, whose directory identifies the cluster."""
    parser.add_argument(
        "--state-dir", metavar="DIR", help="where it keeps its state ($PLIANT_STATE_DIR)"
    )


def _add_remote_options(parser: Parser) -> None:
    group = parser.add_argument_group("nodes on other hosts")
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--hosts",
        metavar="FILE",
        help="hosts that are reached over SSH: a file with one on each line, or a list as in "
        "n[1-3],alice@m7",
    )
    where.add_argument(
        "--inside-slurm",
        action="store_true",
        help="the nodes of the allocation of Slurm in which this command runs",
    )
    group.add_argument(
        "--address",
        metavar="HOST[:PORT]",
        help="where the hosts reach this machine (found by the route to them)",
    )
    group.add_argument(
        "--interface", metavar="NAME", help="network interface of MPI (the one to the server)"
    )
    group.add_argument(
        "--node-dir",
        metavar="DIR",
        help="folder on each host for the state of its node (that of temporary files)",
    )
    group.add_argument("--key", metavar="FILE", help="private key for SSH (agent, usual files)")
    group.add_argument("--known-hosts", metavar="FILE", help="for SSH (those of `ssh`)")
    group.add_argument(
        "--save-before",
        metavar="TIME",
        help=f"save jobs this long before the allocation ends ({SAVE_BEFORE_S / 60:.0f}m)",
    )


def requested_spec(options: argparse.Namespace, known: ClusterSpec) -> ClusterSpec:
    """Return the requested cluster; settings without an option are taken from ``known``.

    Raises:
        UsageError: options contradict each other, or one is wrong.
    """
    # Options belong to their strategy: another one does not inherit them.
    kept = known.strategy_options if options.strategy in (None, known.strategy) else ()
    remote = _requested_remote(options, known)
    nodes, sites = _nodes_and_sites(options, known)
    return ClusterSpec(
        nodes=len(remote.hosts) if remote else nodes,
        slots=options.slots or known.slots,
        strategy=known.strategy if options.strategy is None else options.strategy,
        strategy_options=kept
        if options.strategy_option is None
        else tuple(options.strategy_option),
        transport=options.transport or known.transport,
        config=known.config if options.config is None else _absolute(options.config),
        spares=known.spares if options.spares is None else options.spares,
        most_processes=known.most_processes
        if options.most_processes is None
        else options.most_processes,
        sites="" if remote else sites,
        remote=remote,
    )


def _nodes_and_sites(options: argparse.Namespace, known: ClusterSpec) -> tuple[int, str]:
    """Return the number of nodes, and the sites as ``NAME:NODES,...``; empty without sites.

    A site is a group of nodes. The nodes of all sites must add up to the number of nodes.

    Raises:
        UsageError: the number and the sites disagree, or the sites are malformed.
    """
    sites = known.sites if options.sites is None else options.sites
    if not sites:
        return options.nodes or known.nodes, ""
    nodes = len(site_of_each_node(sites))
    if options.nodes not in (None, nodes):
        raise UsageError(
            f"--nodes {options.nodes}: the sites {sites} have {plural(nodes, 'node')}: name other "
            "sites with --sites, or none with --sites ''"
        )
    return nodes, sites


def _requested_remote(options: argparse.Namespace, known: ClusterSpec) -> RemoteSpec | None:
    """Return the requested hosts of the nodes; None if the nodes are on this machine."""
    is_new = bool(options.hosts or options.inside_slurm)
    if is_new:
        _refuse(options, _LOCAL_ONLY, "is for nodes on this machine: leave it out")
        if not options.hosts:
            _refuse(options, _SSH_ONLY, "is for hosts that are reached over SSH (--hosts)")
        elif options.save_before is not None:
            raise UsageError("--save-before: only an allocation (--inside-slurm) ends by itself")
        return _read_remote(options)
    if any(getattr(options, name) is not None for name in _LOCAL_ONLY):
        _refuse(options, (*_REMOTE_ONLY, *_SSH_ONLY, "save_before"), "needs --hosts")
        return None
    if known.remote is None or known.remote.slurm_job:
        if known.remote is not None:
            raise UsageError(
                f"the last cluster was in the allocation {known.remote.slurm_job} of Slurm: name "
                "the new one with --inside-slurm, --hosts or --nodes"
            )
        _refuse(options, (*_REMOTE_ONLY, *_SSH_ONLY, "save_before"), "needs --hosts")
        return None
    changed = {name: getattr(options, name) for name in _REMOTE_ONLY}
    changed |= {"key_file": options.key, "known_hosts": options.known_hosts}
    return replace(
        known.remote, **{name: value for name, value in changed.items() if value is not None}
    )


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')}: {why}")


def _read_remote(options: argparse.Namespace) -> RemoteSpec:
    remote = RemoteSpec(
        (),
        address=options.address or "",
        interface=options.interface or "",
        node_dir=options.node_dir or "",
        key_file=_absolute(options.key or ""),
        known_hosts=_absolute(options.known_hosts or ""),
    )
    if options.node_dir and not os.path.isabs(options.node_dir):
        raise UsageError(f"--node-dir {options.node_dir}: name it from the root, as in /scratch")
    if options.hosts:
        from pliant.client.cluster.host_list import read_hosts

        hosts = [
            replace(host, slots=host.slots or options.slots or 0)
            for host in read_hosts(options.hosts)
        ]
        return replace(remote, hosts=tuple(hosts))
    from pliant.client.cluster.remote.allocation import read_allocation, require_commands

    found = read_allocation(os.environ, options.slots)
    require_commands()
    return replace(
        remote, hosts=found.hosts, slurm_job=found.job, save_before_s=_save_before(options)
    )


def _save_before(options: argparse.Namespace) -> float:
    if options.save_before is None:
        return SAVE_BEFORE_S
    from pliant.client.terminal.durations import parse_span

    try:
        span = parse_span(options.save_before)
    except ValueError as error:
        raise UsageError(f"--save-before: {error}") from None
    if span < _MIN_SAVE_BEFORE_S:
        raise UsageError(
            f"--save-before {options.save_before}: expected {_MIN_SAVE_BEFORE_S:.0f}s or more, for "
            "checkpoints and for the end of the nodes"
        )
    return span


def _absolute(path: str) -> str:
    """Return a path as an absolute one, for a later `pliant up`; an empty path stays empty."""
    return os.path.abspath(os.path.expanduser(path)) if path else ""

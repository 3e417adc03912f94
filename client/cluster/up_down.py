"""``pliant up`` and ``pliant down``: a whole cluster on this machine."""

from __future__ import annotations

import pliant.client.terminal.quiet  # noqa: F401

# isort: split

import argparse
import errno
import os
import sys
import time
from collections.abc import Sequence

from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import Shape, remember
from pliant.client.cluster.daemons import describe_code
from pliant.client.cluster.local import LocalCluster
from pliant.client.cluster.mpi_library import Library
from pliant.client.cluster.shutdown import Ended, bury, jobs_left, stop, sweep, unburied
from pliant.client.errors import ClientError
from pliant.client.paths import run_dir, state_dir
from pliant.client.terminal.interrupts import Interrupted, Interrupts
from pliant.client.terminal.numbers import whole
from pliant.client.terminal.output import INTERRUPTED, Parser, fail, run_command
from pliant.core.support.plural import plural


def up(argv: Sequence[str] | None = None) -> int:
    """Start a cluster on this machine: a server and node controllers."""
    parser = Parser(
        prog="pliant up",
        description="Start a cluster on this machine, or what is missing of it. Without options "
        "it is the one that this state directory had before.",
        epilog="exit codes: 0 done, 1 it did not come up, 2 wrong usage, 130 Ctrl-C before it was",
    )
    parser.add_argument("--nodes", type=whole(1, 4096), metavar="N", help="node controllers (4)")
    parser.add_argument(
        "--slots", type=whole(1, 4096), metavar="N", help="processors of each node (4)"
    )
    parser.add_argument(
        "--spares",
        type=whole(0, 4096),
        metavar="N",
        help="spare nodes besides, which take the place of nodes that are lost (0)",
    )
    parser.add_argument(
        "--most-processes",
        type=whole(0, 1 << 30),
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
        "-d", "--detach", action="store_true", help="return when it is up (`pliant down` ends it)"
    )
    _add_state_dir(parser)
    options = parser.parse_args(argv)
    return run_command("pliant up", lambda: _up(options))


def down(argv: Sequence[str] | None = None) -> int:
    """Take the cluster on this machine down."""
    parser = Parser(
        prog="pliant down",
        description="Cancel the running jobs and end the server and the node controllers. "
        "Jobs that wait are kept for the next `pliant up`.",
        epilog="exit codes: 0 all is gone, 1 something is left, 2 wrong usage",
    )
    parser.add_argument("--keep-jobs", action="store_true", help="let running jobs go on")
    _add_state_dir(parser)
    options = parser.parse_args(argv)
    return run_command("pliant down", lambda: _down(options))


def _add_state_dir(parser: Parser) -> None:
    parser.add_argument(
        "--state-dir", metavar="DIR", help="where it keeps its state ($PLIANT_STATE_DIR)"
    )


def _cluster(options: argparse.Namespace, shape: Shape | None = None) -> LocalCluster:
    if options.state_dir:
        state = os.path.abspath(os.path.expanduser(options.state_dir))
        return LocalCluster(state, os.path.join(state, "run"), shape)
    return LocalCluster(state_dir(), run_dir(), shape)


def _wanted(options: argparse.Namespace, known: Shape) -> Shape:
    # Options belong to their strategy: another one does not inherit them.
    kept = known.strategy_options if options.strategy in (None, known.strategy) else ()
    return Shape(
        nodes=options.nodes or known.nodes,
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
    )


def _absolute(path: str) -> str:
    """Return a path that means the same at the next `pliant up`; none stays none."""
    return os.path.abspath(path) if path else ""


class _Progress:
    """A line that is rewritten on a terminal; elsewhere one line for each news."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _up(options: argparse.Namespace) -> int:
    cluster, progress, is_up = _cluster(options), _Progress(), False
    with Interrupts() as interrupts, Library() as library:
        if not options.detach:
            process_table.adopt_orphans()
        try:
            with cluster.locked():
                cluster.recall()  # another one may have brought it up while this one waited
                cluster.check_owner()
                shape = _wanted(options, cluster.shape)
                if shape != cluster.shape or not cluster.running():
                    cluster.check(shape)
                cluster.choose(shape)
                with interrupts.shielded():
                    cluster.start_missing()
                cluster.wait_up(progress)
                remember(cluster.state, shape)
                kept = cluster.remove_surplus()
            is_up = True
            progress.end()
            for text in [*kept, *library.complaints()]:
                fail("pliant up", f"warning: {text}")
            print(_greeting(cluster, options), flush=True)
            if options.detach:
                cluster.detach()
                return 0
            _stay(cluster)
        except Interrupted:
            interrupts.ignore()
            progress.end()
            if options.detach:
                cluster.end_started()
                return INTERRUPTED
        except (ClientError, OSError) as error:
            interrupts.ignore()
            progress.end()
            cluster.end_started()
            if isinstance(error, OSError):
                raise _unusable(cluster, error) from None
            raise
        code = _take_down(cluster, progress)
        process_table.collect()
        return code if is_up else INTERRUPTED


def _greeting(cluster: LocalCluster, options: argparse.Namespace) -> str:
    shape = cluster.shape
    spares = f" and {plural(shape.spares, 'spare node')}" if shape.spares else ""
    lines = [
        f"up: {plural(shape.nodes, 'node')} with {plural(shape.slots, 'processor')} "
        f"{'each' if shape.nodes > 1 else 'in all'}{spares}; state and logs in {cluster.state}"
    ]
    if options.state_dir:
        lines.append(
            f"export PLIANT_STATE_DIR={cluster.state} PLIANT_RUN_DIR={cluster.run}  # for jobsub"
        )
    if not options.detach:
        lines.append("Ctrl-C takes it down")
    return "\n".join(lines)


def _stay(cluster: LocalCluster) -> None:
    """Wait for Ctrl-C, and tell of daemons that end meanwhile."""
    told: set[str] = set()
    while True:
        for daemon in cluster.daemons:
            if daemon.name not in told and not daemon.running():
                code = daemon.process.returncode if daemon.process else None
                how = f" with {describe_code(code)}" if code is not None else ""
                fail("pliant up", f"{daemon.name} ended{how}: see {daemon.log}")
                told.add(daemon.name)
        if len(told) == len(cluster.daemons):
            raise ClientError("all daemons have ended")
        time.sleep(0.25)


def _take_down(cluster: LocalCluster, progress: _Progress, *, keep_jobs: bool = False) -> int:
    with cluster.locked():
        ended = stop(cluster, progress, keep_jobs=keep_jobs)
        left = sweep(cluster, keep_jobs=keep_jobs)
        unable = [] if keep_jobs else bury(cluster, progress)
        cluster.disown()
    progress.end()
    _say_ended(ended, cluster.state)
    for node in unable:
        log = cluster.node_file(node, "nodectl.log")
        fail("pliant down", f"jobs of node {node} could not all be ended: see {log}")
    for pid in left:
        fail("pliant down", f"process {pid} is still there: {' '.join(process_table.words(pid))}")
    return 1 if left or unable else 0


def _say_ended(ended: Ended, state: str) -> None:
    """Name the jobs whose processes were ended, and why that was needed."""
    if not ended.jobs:
        return
    jobs, listed = plural(len(ended.jobs), "job"), _listed(ended.jobs)
    if ended.disk_full:
        fail(
            "pliant down",
            f"{jobs} could not be cancelled ({listed}): the disk of {state} is full, so their "
            "processes were ended; make room there before the next `pliant up`, which tells how",
        )
    elif ended.cancelled:
        fail(
            "pliant down",
            f"the server cancelled what ran, but processes of {jobs} did not go ({listed}), so "
            "they were ended; the next `pliant up` tells how",
        )
    else:
        fail(
            "pliant down",
            f"{jobs} could not be cancelled ({listed}): no server answered, so their processes "
            "were ended; the next `pliant up` tells how",
        )


def _down(options: argparse.Namespace) -> int:
    # Whatever its record says: what runs is found by what the state directory has of each daemon.
    cluster = _cluster(options, Shape(nodes=0))
    if not os.path.isdir(cluster.state) and not process_table.find(cluster.owns):
        print("down: nothing was up")
        return 0
    cluster.check_owner()
    with Interrupts() as interrupts:
        interrupts.ignore()
        was = cluster.running() or process_table.find(cluster.owns) or unburied(cluster)
        try:
            code = _take_down(cluster, _Progress(), keep_jobs=options.keep_jobs)
        except OSError as error:
            raise _unusable(cluster, error) from None
    jobs = jobs_left(cluster) if options.keep_jobs else []
    if jobs:
        goes = "goes" if len(jobs) == 1 else "go"
        print(
            f"down: {plural(len(jobs), 'job')} {goes} on ({_listed(jobs)}); "
            "the next `pliant up` has them"
        )
    elif code:
        print("down: not all is gone")
    else:
        print("down: all is gone" if was else "down: nothing was up")
    return code


def _listed(jobs: list[int]) -> str:
    return ", ".join(map(str, jobs))


def _unusable(cluster: LocalCluster, error: OSError) -> ClientError:
    """Say which file cannot be used, and what helps."""
    path = os.fsdecode(error.filename or cluster.state)
    other = "name another directory with --state-dir or $PLIANT_STATE_DIR"
    remedy = f"make room, or {other}" if error.errno in {errno.ENOSPC, errno.EDQUOT} else other
    what = (error.strerror or str(error)).lower()
    if _is_file(cluster.state):
        path, what, remedy = cluster.state, "it is a file, not a directory", other
    elif _is_file(cluster.run):
        return ClientError(
            f"run directory: {cluster.run}: it is a file, not a directory; remove it, or name "
            "another directory with $PLIANT_RUN_DIR"
        )
    return ClientError(f"state directory: {path}: {what}; {remedy}")


def _is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)

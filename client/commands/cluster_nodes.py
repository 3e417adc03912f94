"""The actions of ``pliant cluster`` on nodes and login agents: tokens, lists and revocation.

They are ``token``, ``tokens``, ``withdraw``, ``nodes`` and ``revoke``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.commands.cluster_options import (
    add_action,
    changed_directory_of,
    directory_of,
    format_day,
    print_lines,
)
from pliant.client.paths import run_dir
from pliant.client.terminal.number_arguments import bounded_int
from pliant.client.terminal.output import print_json, print_text
from pliant.client.terminal.tables import clean, table

if TYPE_CHECKING:
    from pliant.protos.identity.admitted_nodes import AdmittedNode
    from pliant.protos.identity.certificate_names import Role
    from pliant.protos.identity.cluster_files import ClusterIdentity
    from pliant.protos.node_joining.token_store import StoredToken

_MAX_SLOTS = 1_000_000
#: Written by the server, with the addresses of its listeners.
_ADDRESSES = "cluster.addresses"
_WILDCARDS = ("0.0.0.0", "::", "")


def add_node_actions(actions: Any) -> None:
    """Add the actions of this module to the parser of ``pliant cluster``."""
    token = add_action(actions, "token", "make a token with which a host joins", _token)
    which = token.add_mutually_exclusive_group(required=True)
    which.add_argument("--node", metavar="NAME", help="the name of the node")
    which.add_argument("--login-agent", metavar="NAME", help="the name of the login agent")
    token.add_argument(
        "--ttl", default="10m", metavar="TIME", help="how long it is good, at most 7d (10m)"
    )
    token.add_argument(
        "--slots",
        type=bounded_int(1, _MAX_SLOTS),
        metavar="N",
        help="the most slots that the node may offer (any number)",
    )
    token.add_argument(
        "--server",
        metavar="HOST:PORT",
        help="where the host reaches the server's port for joining nodes (that of the running "
        "server)",
    )
    add_action(actions, "tokens", "list tokens that can still be used", _tokens)
    withdraw = add_action(actions, "withdraw", "make tokens unusable", _withdraw)
    withdraw.add_argument("tokens", nargs="+", metavar="token", help="its id, or name of its node")
    nodes = add_action(actions, "nodes", "list nodes that have joined", _nodes)
    _add_role_option(nodes)
    revoke = add_action(
        actions, "revoke", "exclude nodes: the server closes their connections", _revoke
    )
    revoke.add_argument("names", nargs="+", metavar="node", help="a node")
    _add_role_option(revoke)


def _add_role_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--login-agents", action="store_true", help="login agents instead of nodes")


def _role(is_agent: bool) -> Role:
    from pliant.protos.identity.certificate_names import Role

    return Role.LOGIN_AGENT if is_agent else Role.NODE


def _token(options: argparse.Namespace) -> int:
    import time

    from pliant.client.terminal.durations import format_duration, parse_span
    from pliant.protos.identity.certificate_names import check_name
    from pliant.protos.identity.certificates import fingerprint
    from pliant.protos.identity.cluster_files import load_identity

    role = _role(options.login_agent is not None)
    name = options.login_agent if options.node is None else options.node
    check_name(f"--{role}", name)
    if role is not _role(False) and options.slots is not None:
        raise UsageError("--slots: only nodes have slots; leave it out")
    try:
        lifetime_s = parse_span(options.ttl)
    except ValueError as error:
        raise UsageError(f"--ttl: {error}") from None
    directory, now = changed_directory_of(options), time.time()
    found = load_identity(directory)
    _check_unused(_admitted(directory, role).find(name), role, now)
    address = options.server or _joining_address(found)
    token = _store(directory).create(
        name,
        role=role,
        max_slots=options.slots,
        lifetime_s=lifetime_s,
        fingerprints=[fingerprint(root) for root in found.roots],
        address=address,
        now=now,
    )
    if options.json:
        record = {"token": token.format(), "id": token.id, "node": name}
        print_json({**record, "expires": now + lifetime_s, "server": address})
        return 0
    print_text(token.format())
    slots = "any number of slots" if options.slots is None else f"{options.slots} slots at most"
    limit = f", with {slots}," if role is _role(False) else ""
    sys.stdout.flush()
    # Not on stdout, so that a script gets the token alone.
    sys.stderr.write(
        f"On the host, run `pliant node join TOKEN` within {format_duration(lifetime_s)}. It "
        f"becomes {role} {name}{limit} of the server at {clean(address)}.\n"
    )
    return 0


def _check_unused(node: AdmittedNode | None, role: Role, now: float) -> None:
    """Check that no host can connect as a certain node or login agent any more.

    Args:
        node: the last host that was admitted under the name; None if there was none.
        role: the role of the host, node or login agent.
        now: seconds since the epoch.

    Raises:
        ClientError: the certificate of the host is still valid; the text says how to revoke it.
    """
    if node is not None and node.revoked_at is None and now < node.ends:
        raise ClientError(
            f"{role} {node.name} has joined already (its certificate is valid until "
            f"{format_day(node.ends)}): to let it join again, or to give its name to another host, "
            f"first run `pliant cluster revoke {node.name}"
            f"{'' if role is _role(False) else ' --login-agents'}`"
        )


def _joining_address(found: ClusterIdentity) -> str:
    """Return the address, HOST:PORT, at which the running server lets hosts join."""
    from pliant.protos.address import TcpAddress, parse_address
    from pliant.protos.identity.authority import server_addresses
    from pliant.protos.identity.certificate_names import SERVER_DNS_NAME

    path = Path(run_dir(), _ADDRESSES)
    try:
        address = parse_address(json.loads(path.read_text(encoding="ascii"))["joining"])
    except (OSError, ValueError, TypeError, LookupError):
        raise ClientError(
            f"no server is listening for joining nodes ({path}): set `listen: HOST:PORT` in its "
            "configuration and start it, or name its port for joining with --server HOST:PORT"
        ) from None
    if not isinstance(address, TcpAddress):
        raise ClientError(f"{path}: expected HOST:PORT; name it with --server HOST:PORT")
    if address.host not in _WILDCARDS:
        return str(address)
    names = [each for each in server_addresses(found.server[0]) if each != SERVER_DNS_NAME]
    if not names:
        raise ClientError(
            f"the server listens on all interfaces ({address}): name the address at which the host "
            f"reaches it with --server HOST:{address.port}"
        )
    return str(TcpAddress(names[0], address.port))


def _tokens(options: argparse.Namespace) -> int:
    import time

    from pliant.client.terminal.durations import format_duration

    directory, now = _existing(changed_directory_of(options)), time.time()
    pending = _store(directory).pending(now=now)
    if options.json:
        print_json({"tokens": [_token_record(each) for each in pending]})
        return 0
    rows = [
        (each.id, each.node, each.role, _slots(each.max_slots), format_duration(each.expires - now))
        for each in pending
    ]
    print_lines(table(("ID", "NODE", "ROLE", "SLOTS", "EXPIRES IN"), rows).splitlines())
    return 0


def _withdraw(options: argparse.Namespace) -> int:
    import time

    directory, now = _existing(changed_directory_of(options)), time.time()
    done = [each for which in options.tokens for each in _store(directory).withdraw(which, now=now)]
    if options.json:
        print_json({"withdrawn": [_token_record(each) for each in done]})
        return 0
    print_lines([f"token {each.id} of {each.role} {each.node} is withdrawn" for each in done])
    return 0


def _nodes(options: argparse.Namespace) -> int:
    import time

    from pliant.protos.identity.cluster_files import load_identity
    from pliant.protos.identity.cluster_renewal import needing_old_root

    directory, now = directory_of(options), time.time()
    found = load_identity(directory)
    nodes = _admitted(directory, _role(options.login_agents)).read()
    records = [_node_record(each, now) for each in nodes.values()]
    if options.json:
        print_json({"nodes": records})
        return 0
    rows = [
        (
            each["name"],
            _slots(each["slots"]),
            each["state"],
            format_day(each["certificate_ends"]),
            format_day(each["admitted_at"]),
        )
        for each in records
    ]
    lines = table(("NODE", "SLOTS", "STATE", "VALID UNTIL", "JOINED"), rows).splitlines()
    if len(found.roots) > 1 and (waiting := needing_old_root(found, nodes, now=now)):
        lines.append(f"with certificates under the old root: {', '.join(waiting)}")
    print_lines(lines)
    return 0


def _revoke(options: argparse.Namespace) -> int:
    import time

    directory, now = _existing(changed_directory_of(options)), time.time()
    role = _role(options.login_agents)
    admitted, done = _admitted(directory, role), []
    for name in options.names:
        done.append(admitted.revoke(name, now=now))
        # Also those that are still open: whoever has one could join under this name.
        _store(directory).forget(name, now=now, role=role)
    if options.json:
        print_json({"nodes": [_node_record(each, now) for each in done]})
        return 0
    print_lines(
        [
            f"{role} {each.name} is revoked: the server refuses it from now on; to let it join "
            f"again: `pliant cluster token --{role} {each.name}`"
            for each in done
        ]
    )
    return 0


def _existing(directory: Path) -> Path:
    """Check that a directory contains the identity of a cluster, and return the directory."""
    from pliant.protos.identity.cluster_files import load_identity

    load_identity(directory)
    return directory


def _store(directory: Path) -> Any:
    from pliant.protos.node_joining.token_store import FILE, TokenStore

    return TokenStore(directory / FILE)


def _admitted(directory: Path, role: Role) -> Any:
    from pliant.protos.identity.admitted_nodes import AGENTS_FILE, FILE, AdmittedNodes

    name = FILE if role is _role(False) else AGENTS_FILE
    return AdmittedNodes(directory / name, role=role)


def _slots(number: int | None) -> str:
    return "any" if number is None else str(number)


def _token_record(token: StoredToken) -> dict[str, Any]:
    record = {"id": token.id, "node": token.node, "role": token.role, "slots": token.max_slots}
    return {**record, "expires": token.expires}


def _node_record(node: AdmittedNode, now: float) -> dict[str, Any]:
    state = "joined" if now < node.ends else "expired"
    if node.revoked_at is not None:
        state = "revoked"
    return {
        "name": node.name,
        "slots": node.slots,
        "state": state,
        "certificate_ends": node.ends,
        "serials": list(node.serials),
        "admitted_at": node.admitted_at,
        "revoked_at": node.revoked_at,
    }

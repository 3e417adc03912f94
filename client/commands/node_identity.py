"""``pliant node join``, ``show`` and ``leave``: the identity of this host as a node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.client.client_errors import ClientError
from pliant.client.paths import state_dir
from pliant.client.terminal.output import print_json, print_text
from pliant.client.terminal.tables import clean
from pliant.core.support.base_error import PliantError

if TYPE_CHECKING:
    from pliant.protos.identity.node_files import NodeIdentity

_MAX_TOKEN_TEXT = 4096


def add_identity_actions(actions: Any) -> None:
    """Add the actions of this module to the parser of ``pliant node``."""
    join = _add_action(actions, "join", "make this host a node or login host, with a token", _join)
    join.add_argument(
        "token", help="from `pliant cluster token` on the server's host; - reads it from stdin"
    )
    join.add_argument(
        "--address", metavar="HOST:PORT", help="of the server, if the one in the token is not right"
    )
    join.add_argument(
        "--account",
        default="",
        metavar="NAME",
        help="as root: join for the daemons of this account, and set up the root helper",
    )
    _add_action(actions, "show", "show which node this host is", _show)
    _add_action(actions, "leave", "remove key and certificate of this host", _leave)


def _add_action(
    actions: Any, name: str, text: str, act: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(act=lambda options: _report_errors(act, options))
    return parser


def _report_errors(act: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run an action and return its exit code; errors of this host's identity become ClientErrors.

    The identity consists of the host's name in the cluster, its key and its certificates.
    """
    from pliant.protos.daemons.private_paths import UntrustedPathError
    from pliant.protos.identity.identity_errors import IdentityError

    try:
        return act(options)
    except (IdentityError, UntrustedPathError) as error:
        raise ClientError(str(error)) from None
    except FileNotFoundError as error:
        if error.filename != str(_directory()):
            raise
        raise ClientError(f"{error.strerror} ({error.filename})") from None


def _directory() -> Path:
    from pliant.protos.identity.node_files import DIRECTORY

    return Path(state_dir(), DIRECTORY)


def _join(options: argparse.Namespace) -> int:
    from pliant.client.node_joining import join
    from pliant.protos.node_joining.join_token import parse_token

    text = sys.stdin.read(_MAX_TOKEN_TEXT) if options.token == "-" else options.token
    token = parse_token(text)
    if options.account:
        return _join_for_account(options, text.strip())
    identity = join(token, _directory(), address=options.address or "")
    if options.json:
        print_json(_record(identity))
        return 0
    print_text(clean(f"this host is {_member(identity)} of {_cluster(identity)}"))
    print_text(clean(f"its key and certificate are in {_directory()}"))
    if identity.identity.role == "node":
        print_text("to start its controller: `pliant nodectl`")
    else:
        print_text("to let its users use the cluster: `pliant login-agent`")
    return 0


def _join_for_account(options: argparse.Namespace, token: str) -> int:
    from pliant.client.node_join_as_root import join_for_account

    host = join_for_account(options.account, token, options.address or "")
    record = host.record
    if options.json:
        print_json(record)
        return 0
    what = "node" if host.written else "login-agent"
    print_text(clean(f"this host is {what} {record['node']} of cluster {record['cluster']}"))
    print_text(clean(f"its key and certificate are in {record['directory']}"))
    for path in host.written:
        print_text(f"written for the root helper: {path}")
    units = "pliant-helper pliant-nodectl" if host.written else "pliant-login-agent"
    print_text(f"to start: `systemctl enable --now {units}`")
    return 0


def _show(options: argparse.Namespace) -> int:
    import time

    from pliant.protos.identity.node_files import load_node_identity

    identity = load_node_identity(_directory(), role=None)
    record = _record(identity)
    if options.json:
        print_json(record)
        return 0
    slots = "any number" if identity.slots is None else f"{identity.slots} at most"
    day = "%Y-%m-%d"
    ends = time.strftime(day, time.gmtime(record["certificate_ends"]))
    renews = time.strftime(day, time.gmtime(record["renew_at"]))
    lines = [
        f"{_member(identity)} of {_cluster(identity)}",
        f"certificate: {record['state']}, until {ends}; the controller renews it from {renews} on",
        f"slots: {slots}",
        *(f"fingerprint of the root: {each}" for each in record["fingerprints"]),
    ]
    for line in lines:
        print_text(clean(line))
    return 0


def _leave(options: argparse.Namespace) -> int:
    import shutil

    from pliant.protos.identity.node_files import load_node_identity

    directory = _directory()
    try:
        name = load_node_identity(directory, role=None).identity.name
    except FileNotFoundError:
        raise
    except (PliantError, OSError):  # a damaged identity can be removed, too
        name = ""
    old = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    directory.rename(old)  # first, so that nobody reads half of it
    shutil.rmtree(old)
    if options.json:
        print_json({"node": name or None})
        return 0
    print_text(clean(f"this host is not node {name or '(damaged identity)'} any more"))
    print_text(
        "a running controller must be stopped; on the server's host, run "
        + clean(f"`pliant cluster revoke {name or 'NODE'}`")
    )
    return 0


def _member(identity: NodeIdentity) -> str:
    """Return the role and name of this host, such as "node n1" or "login agent l1"."""
    return f"{identity.identity.role} {identity.identity.name}"


def _cluster(identity: NodeIdentity) -> str:
    servers = ", ".join(identity.servers)
    return f"cluster {identity.identity.cluster}, whose server is at {servers}"


def _record(identity: NodeIdentity) -> dict[str, Any]:
    import time

    from pliant.protos.identity.certificates import ends_at, fingerprint, renew_at, starts_at

    certificate, now = identity.chain[0], time.time()
    if now < starts_at(certificate):
        state = "not valid yet"
    else:
        state = "valid" if now < ends_at(certificate) else "expired"
    return {
        "node": identity.identity.name,
        "role": str(identity.identity.role),
        "cluster": identity.identity.cluster,
        "directory": str(_directory()),
        "servers": list(identity.servers),
        "slots": identity.slots,
        "state": state,
        "certificate_ends": ends_at(certificate),
        "renew_at": renew_at(certificate),
        "fingerprints": [fingerprint(root) for root in identity.bundle],
    }

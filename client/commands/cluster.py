"""``pliant cluster``: the identity of a cluster of several hosts, and its nodes."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.commands.cluster_nodes import add_node_actions
from pliant.client.commands.cluster_options import (
    add_action,
    directory_of,
    format_day,
    print_lines,
)
from pliant.client.commands.cluster_renewal import add_renewal_actions
from pliant.client.terminal.output import Parser, print_json, run_command
from pliant.client.terminal.tables import table

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from pliant.protos.identity.cluster_files import ClusterIdentity

PROG = "pliant cluster"


def main(argv: Sequence[str] | None = None) -> int:
    """Make and renew the identity of a cluster of several hosts, and admit nodes."""
    options = _parser().parse_args(argv)
    return run_command(PROG, lambda: _report_errors(options.act, options))


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        description="Make and renew the keys and certificates of a cluster of several hosts, and "
        "decide which hosts are its nodes. Run it on the server's host, as the server's user.",
        epilog="exit codes: 0 done, 1 the request failed, 2 wrong usage",
    )
    actions = parser.add_subparsers(metavar="action", required=True)
    init = add_action(actions, "init", "make the keys and certificates of a new cluster", _init)
    init.add_argument("--name", help="of the cluster (the name of this host)")
    init.add_argument(
        "--address",
        action="append",
        default=[],
        metavar="HOST",
        help="a host name or IP address of the server, for its certificate; may be repeated",
    )
    add_action(actions, "show", "show identities, fingerprints and ends of certificates", _show)
    add_node_actions(actions)
    add_renewal_actions(actions)
    return parser


def _report_errors(act: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run an action and return its exit code; report errors of identities as errors of the command.

    Raises:
        UsageError: a name on the command line is wrong.
        ClientError: the keys and certificates of the cluster cannot be used.
    """
    from pliant.protos.daemons.private_paths import UntrustedPathError
    from pliant.protos.identity.identity_errors import IdentityError, IdentityNameError

    try:
        return act(options)
    except IdentityNameError as error:
        raise UsageError(str(error)) from None
    except (IdentityError, UntrustedPathError) as error:
        raise ClientError(str(error)) from None


def _init(options: argparse.Namespace) -> int:
    import time

    from pliant.protos.identity import cluster_files
    from pliant.protos.identity.certificate_names import check_name

    name = _host_name() if options.name is None else options.name
    check_name("--name", name)
    directory, now = directory_of(options), time.time()
    made = cluster_files.create_identity(directory, name, options.address, now=now)
    if options.json:
        print_json(_record(directory, made, now))
        return 0
    root_key = directory / cluster_files.ROOT_KEY
    lines = [
        f"cluster {made.cluster}: keys and certificates are in {directory}",
        f"fingerprint of the root: {_fingerprints(made)[0]}",
        *_describe_certificates(made, now),
        f"{root_key} is needed only to renew the issuing authority, about every six months.",
        "It may be moved offline, to two places. The other files stay here, for their owner only.",
    ]
    print_lines(lines)
    return 0


def _show(options: argparse.Namespace) -> int:
    import time

    from pliant.protos.identity.cluster_files import ROOT_KEY, load_identity

    directory, now = directory_of(options), time.time()
    found = load_identity(directory)
    if options.json:
        print_json(_record(directory, found, now))
        return 0
    root_key = "here, may be moved offline" if found.has_root_key else "offline"
    lines = [
        f"cluster {found.cluster}, in {directory}",
        *(f"fingerprint of the root: {each}" for each in _fingerprints(found)),
        f"key of the root ({ROOT_KEY}): {root_key}",
        *_describe_certificates(found, now),
    ]
    print_lines(lines)
    return 0


def _host_name() -> str:
    """Return the name of this host without its domain."""
    import socket

    return socket.gethostname().partition(".")[0]


def _fingerprints(found: ClusterIdentity) -> list[str]:
    from pliant.protos.identity.certificates import fingerprint

    return [fingerprint(root) for root in found.roots]


def _members(found: ClusterIdentity) -> list[tuple[str, Certificate]]:
    """Return pairs of a name and a certificate: all roots, the issuing authority and the server."""
    roots = [("root", root) for root in found.roots]
    return [*roots, ("issuing authority", found.issuer), ("server", found.server[0])]


def _describe_certificates(found: ClusterIdentity, now: float) -> list[str]:
    """Return the lines of a table of the certificates, with warnings about their validity."""
    records = [_certificate(kind, each, now) for kind, each in _members(found)]
    rows = [
        (each["kind"], format_day(each["ends"]), format_day(each["renew_at"]), each["state"])
        for each in records
    ]
    server = records[-1]
    return [
        *table(("CERTIFICATE", "VALID UNTIL", "RENEW AT", "STATE"), rows).splitlines(),
        f"the server is {server['identity']}, at {', '.join(server['addresses'])}",
        *(each["problem"] for each in records if each["problem"]),
    ]


def _record(directory: Path, found: ClusterIdentity, now: float) -> dict[str, Any]:
    return {
        "cluster": found.cluster,
        "directory": str(directory),
        "fingerprints": _fingerprints(found),
        "root_key_is_here": found.has_root_key,
        "order_public_key": found.order_public_key.hex(),
        "certificates": [_certificate(kind, each, now) for kind, each in _members(found)],
    }


def _certificate(kind: str, certificate: Certificate, now: float) -> dict[str, Any]:
    from pliant.protos.identity import certificates as reading
    from pliant.protos.identity.authority import server_addresses
    from pliant.protos.identity.identity_errors import CertificateTimeError

    problem = None
    try:
        reading.check_time(certificate, f"the certificate of the {kind}", now)
        state = "valid" if now < reading.renew_at(certificate) else "renew"
    except CertificateTimeError as error:
        problem = str(error)
        state = "not valid yet" if now < reading.starts_at(certificate) else "expired"
    is_server = kind == "server"
    return {
        "kind": kind,
        "identity": reading.read_identity(certificate).uri if is_server else None,
        "addresses": list(server_addresses(certificate)) if is_server else [],
        "fingerprint": reading.fingerprint(certificate),
        "starts": reading.starts_at(certificate),
        "renew_at": reading.renew_at(certificate),
        "ends": reading.ends_at(certificate),
        "state": state,
        "problem": problem,
    }

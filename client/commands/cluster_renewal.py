"""``pliant cluster renew`` and ``roll-over``: certificates are replaced while the server runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.client.client_errors import UsageError
from pliant.client.commands.cluster_options import (
    add_action,
    changed_directory_of,
    format_day,
    print_lines,
)
from pliant.client.terminal.output import print_json

if TYPE_CHECKING:
    from pliant.protos.identity.cluster_files import ClusterIdentity


def add_renewal_actions(actions: Any) -> None:
    """Add the actions of this module to the parser of ``pliant cluster``."""
    renew = add_action(
        actions, "renew", "renew the issuing authority and the server's certificate", _renew
    )
    renew.add_argument(
        "--address",
        action="append",
        default=[],
        metavar="HOST",
        help="a further host name or IP address of the server; may be repeated",
    )
    renew.add_argument(
        "--remove-address",
        action="append",
        default=[],
        metavar="HOST",
        help="an address that the server no longer has; may be repeated",
    )
    renew.add_argument(
        "--only-address",
        action="append",
        default=[],
        metavar="HOST",
        help="an address of the server, instead of all in the certificate; may be repeated",
    )
    renew.add_argument("--root-key", metavar="FILE", help="the key of the root, if it is offline")
    renew.add_argument(
        "--server-only",
        action="store_true",
        help="renew the server's certificate only, which needs no key of the root",
    )
    roll = add_action(actions, "roll-over", "replace the root of the cluster", _roll_over)
    roll.add_argument(
        "step",
        choices=("start", "finish"),
        help="start: make a new root, which nodes trust in addition; finish: drop the old root",
    )


def _renew(options: argparse.Namespace) -> int:
    import time

    from pliant.protos.identity.cluster_renewal import renew

    if options.only_address and (options.address or options.remove_address):
        raise UsageError(
            "--only-address replaces all addresses: name each of them with it, without --address "
            "and --remove-address"
        )
    found = renew(
        changed_directory_of(options),
        now=time.time(),
        addresses=[*options.address, *options.only_address],
        removed=options.remove_address,
        replaces_addresses=bool(options.only_address),
        root_key=None if options.root_key is None else Path(options.root_key),
        server_only=options.server_only,
    )
    what = "the server's certificate is" if options.server_only else "certificates are"
    return _report(options, found, [f"{what} renewed; a running server uses them at once"])


def _roll_over(options: argparse.Namespace) -> int:
    import time

    from pliant.protos.identity import cluster_renewal as renewal
    from pliant.protos.identity.admitted_nodes import FILE, AdmittedNodes
    from pliant.protos.node_joining.token_store import FILE as TOKEN_FILE
    from pliant.protos.node_joining.token_store import TokenStore

    directory, now = changed_directory_of(options), time.time()
    nodes = AdmittedNodes(directory / FILE)
    if options.step == "start":
        found = renewal.start_roll_over(directory, now=now)
        waiting = renewal.needing_old_root(found, nodes.read(), now=now)
        text = f"nodes that renew their certificates: {', '.join(waiting)}" if waiting else ""
        return _report(
            options,
            found,
            [
                "the cluster has a new root, and trusts the old one, too",
                *([text] if text else []),
                "when no node needs the old root any more (`pliant cluster nodes`): `pliant "
                "cluster roll-over finish`",
            ],
        )
    found = renewal.finish_roll_over(directory, nodes.read(), now=now)
    # They name the old root, too, and a server without it is still one of theirs. But those from
    # before the roll-over name only the old one.
    tokens = TokenStore(directory / TOKEN_FILE).withdraw_all(now=now)
    return _report(
        options,
        found,
        [
            "the old root is dropped; destroy copies of its key",
            *(f"token {each.id} of node {each.node} is withdrawn: make another" for each in tokens),
        ],
    )


def _report(options: argparse.Namespace, found: ClusterIdentity, lines: Sequence[str]) -> int:
    from pliant.protos.identity.certificates import ends_at, fingerprint

    fingerprints = [fingerprint(root) for root in found.roots]
    issuer, server = ends_at(found.issuer), ends_at(found.server[0])
    if options.json:
        print_json({"fingerprints": fingerprints, "issuer_ends": issuer, "server_ends": server})
        return 0
    print_lines(
        [
            *lines,
            *(f"fingerprint of the root: {each}" for each in fingerprints),
            f"the issuing authority is valid until {format_day(issuer)}, the server's certificate "
            f"until {format_day(server)}",
        ]
    )
    return 0

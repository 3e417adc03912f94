"""``pliant node``: take nodes out of use and back, and make this host a node."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from pliant.client.commands.node_identity import add_identity_actions
from pliant.client.terminal.node_names import node_names
from pliant.client.terminal.output import Parser, print_text, run_command
from pliant.client.terminal.tables import clean

PROG = "pliant node"


def main(argv: Sequence[str] | None = None) -> int:
    """Drain, resume and remove nodes; let this host join and leave a cluster; run its helper."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["helper"]:
        return _run_helper(words[1:])
    options = _parser().parse_args(words)
    return run_command(PROG, lambda: int(options.act(options)))


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        description="Keep new work off nodes (drain), let them take work again (resume), or take "
        "nodes that will not come back off the list (remove). On a host: make it a node of a "
        "cluster (join), see or give up what it is (show, leave), and start jobs as their users "
        "(helper, as root).",
        epilog="exit codes: 0 done, 1 the request failed, 2 wrong usage, 3 no server",
    )
    actions = parser.add_subparsers(metavar="action", required=True)
    for name, text in (
        ("drain", "give nodes no more work"),
        ("resume", "let nodes take work again"),
        ("remove", "take nodes off the list of the server"),
    ):
        action: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + "."
        )
        action.add_argument("names", nargs="+", metavar="node", help="a node, or several: n[01-16]")
        action.add_argument(
            "--reason", default="", help="with drain: what others should know of it"
        )
        action.set_defaults(act=_request, action=name)
    add_identity_actions(actions)
    actions.add_parser("helper", help="as root: start jobs as their users, for the controller")
    return parser


def _run_helper(words: list[str]) -> int:
    """Replace this process by the helper, a program with root privileges that controllers use.

    Root must not load modules from folders that the environment or the current folder names, so
    the helper has an isolated interpreter of its own.
    """
    program = [sys.executable, "-I", "-m", "pliant.nodectl.root_helper", *words]
    try:
        os.execv(sys.executable, program)
    except OSError as error:
        print(f"{PROG} helper: {sys.executable}: {error.strerror}", file=sys.stderr)
        return 1


def _request(options: argparse.Namespace) -> int:
    from pliant.client.connection import Connection

    with Connection() as link:
        for name in node_names(options.names):
            more: dict[str, Any] = {"reason": options.reason} if options.action == "drain" else {}
            answer = link.request(options.action, node=name, **more)
            if answer.get("message"):
                print_text(clean(answer["message"]))
    return 0

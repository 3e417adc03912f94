"""``pliant node``: take a node out of use and back, or off the list for good."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

from collections.abc import Sequence
from typing import Any

from pliant.client.connection import Connection
from pliant.client.terminal.output import Parser, print_text, run_command
from pliant.client.terminal.tables import clean

PROG = "pliant node"


def main(argv: Sequence[str] | None = None) -> int:
    """Drain, resume and remove nodes."""
    parser = Parser(
        prog=PROG,
        description="Keep new work off nodes (drain), let them take work again (resume), or take "
        "nodes that will not come back off the list (remove).",
        epilog="exit codes: 0 done, 1 the request failed, 2 wrong usage, 3 no server",
    )
    parser.add_argument("action", choices=("drain", "resume", "remove"))
    parser.add_argument("names", nargs="+", metavar="node", help="a node")
    parser.add_argument("--reason", default="", help="with drain: what others should know of it")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _act(options.action, options.names, options.reason))


def _act(action: str, names: list[str], reason: str) -> int:
    with Connection() as link:
        for name in names:
            more: dict[str, Any] = {"reason": reason} if action == "drain" else {}
            answer = link.request(action, node=name, **more)
            if answer.get("message"):
                print_text(clean(answer["message"]))
    return 0

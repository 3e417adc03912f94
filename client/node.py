"""``pliant node``: take a node out of use and back."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.client.connection import Connection
from pliant.client.output import Parser, run_command

PROG = "pliant node"


def main(argv: Sequence[str] | None = None) -> int:
    """Drain nodes, and resume them."""
    parser = Parser(
        prog=PROG,
        description="Keep new work off nodes (drain), or let them take work again (resume).",
        epilog="exit codes: 0 done, 1 the request failed, 2 wrong usage, 3 no server",
    )
    parser.add_argument("action", choices=("drain", "resume"))
    parser.add_argument("names", nargs="+", metavar="node", help="a node")
    parser.add_argument("--reason", default="", help="what others should know about it")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _act(options.action, options.names, options.reason))


def _act(action: str, names: list[str], reason: str) -> int:
    with Connection() as link:
        for name in names:
            if action == "drain":
                link.request("drain", node=name, reason=reason)
            else:
                link.request("resume", node=name)
    return 0

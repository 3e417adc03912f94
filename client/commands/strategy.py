"""``pliant strategy``: show the strategy of the server, or use another one."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pliant.client.connection import Connection
from pliant.client.terminal.output import (
    Parser,
    name_and_value,
    print_json,
    print_text,
    run_command,
)
from pliant.client.terminal.tables import table

PROG = "pliant strategy"


def main(argv: Sequence[str] | None = None) -> int:
    """Show the present strategy, or choose another one; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Show the strategy that plans and those that are known, or use another one. "
        "Operators may choose. The choice holds until another one, also after a restart of the "
        "server, or until the configuration names another strategy.",
        epilog="exit codes: 0 done, 1 the server refused, 2 wrong usage, 3 no server",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="use this strategy")
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        type=name_and_value,
        metavar="NAME=VALUE",
        help="option of the strategy (repeatable)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    if options.option and options.name is None:
        parser.error("--option: name the strategy that has it")
    return run_command(PROG, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    with Connection() as link:
        if options.name is not None:
            chosen = dict(options.option)
            answer = link.request("strategy", strategy=options.name, options=chosen)
            if options.json:
                print_json({"message": answer["message"]})
            else:
                print_text(answer["message"])
            return 0
        answer = link.request("strategies")
    if options.json:
        print_json({key: answer[key] for key in ("strategy", "options", "strategies")})
    else:
        print_text(_shown(answer))
    return 0


def _shown(answer: Mapping[str, Any]) -> str:
    own = ", ".join(f"{name}={value}" for name, value in answer["options"].items())
    rows = [
        (
            "*" if each["name"] == answer["strategy"] else "",
            each["name"],
            ", ".join(option["name"] for option in each["options"]),
        )
        for each in answer["strategies"]
    ]
    head = f"strategy in force: {answer['strategy']}{f' with {own}' if own else ''}"
    return f"{head}\n{table(('', 'strategy', 'options'), rows, right=frozenset())}"


if __name__ == "__main__":
    sys.exit(main())

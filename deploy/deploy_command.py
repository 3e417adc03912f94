"""``pliant deploy``: install Pliant on real machines."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

from collections.abc import Sequence

from pliant.client.terminal.output import Parser, run_command

PROG = "pliant deploy"


def main(argv: Sequence[str] | None = None) -> int:
    """Print or install systemd units and manual pages."""
    options = _parser().parse_args(argv)
    return run_command(PROG, lambda: int(options.act(options)))


def _parser() -> Parser:
    from pliant.deploy.man_command import add_man_action
    from pliant.deploy.units_command import add_units_action

    parser = Parser(
        prog=PROG,
        description="Install Pliant on real machines.",
        epilog="exit codes: 0 done, 1 a file cannot be written, 2 wrong usage",
    )
    actions = parser.add_subparsers(metavar="action", required=True)
    add_units_action(actions)
    add_man_action(actions)
    return parser

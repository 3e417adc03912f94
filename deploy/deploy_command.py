"""``pliant deploy``: install Pliant on real machines."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import sys
from collections.abc import Sequence

from pliant.client.terminal.output import Parser, run_command

PROG = "pliant deploy"
_ACTIONS = ("hosts", "wheels", "units", "man")


def main(argv: Sequence[str] | None = None) -> int:
    """Install Pliant on hosts over SSH, or print and write the files of an installation."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] not in (*_ACTIONS, "-h", "--help"):
        words.insert(0, "hosts")  # `pliant deploy hosts.yaml`
    options = _parser().parse_args(words)
    return run_command(PROG, lambda: int(options.act(options)))


def _parser() -> Parser:
    from pliant.deploy.hosts_command import add_hosts_action
    from pliant.deploy.man_command import add_man_action
    from pliant.deploy.units_command import add_units_action
    from pliant.deploy.wheels_command import add_wheels_action

    parser = Parser(
        prog=PROG,
        description="Install Pliant on real machines.",
        epilog="exit codes: 0 done, 1 a host failed or a file cannot be written, 2 wrong usage",
    )
    actions = parser.add_subparsers(metavar="action", required=True)
    add_hosts_action(actions)
    add_wheels_action(actions)
    add_units_action(actions)
    add_man_action(actions)
    return parser

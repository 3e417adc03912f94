"""``pliant``: one command that finds all others through the entry points ``pliant.commands``."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import re
import sys
from collections.abc import Sequence

from pliant.client.commands.entry_points import Command, find_commands
from pliant.client.terminal.output import print_error, run_command

PROG = "pliant"

#: The first line of a function's docstring, and of a module's. Parsing nine whole files instead
#: took half of the time of `pliant --help`.
_FUNCTION = r'(?m)^def {}\([^"]*?\)[^"\n]*:\n    """([^"\n]*)'
_MODULE = r'\A"""([^"\n]*)'

_SEE_ALSO = """\
jobsub, jobstat, jobdel, jobctl and nodestat are commands of their own.
`pliant COMMAND --help` tells more about one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand of ``pliant``; only its own module is imported."""
    words = sys.argv[1:] if argv is None else list(argv)
    return run_command(PROG, lambda: _run(words))


def _run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from pliant import __version__

        print(f"{PROG} {__version__}")
        return 0
    if words[:1] in (["-h"], ["--help"], ["help"]):
        print(_help())
        return 0
    if not words:
        print_error(PROG, f"no command\n{_help()}")
        return 2
    commands = find_commands()
    if words[0].startswith("-"):
        print_error(PROG, f"unknown option {words[0]}\n(try `{PROG} --help`)")
        return 2
    if words[0] not in commands:
        print_error(PROG, f"there is no command {words[0]!r}; there are: {', '.join(commands)}")
        return 2
    entry = commands[words[0]]
    try:
        function = entry.load()
    except ModuleNotFoundError as error:
        print_error(PROG, f"{words[0]} cannot be loaded: {error}")
        return 1
    return int(function(words[1:]) or 0)


def _help() -> str:
    commands = find_commands()
    width = max(map(len, commands), default=0)
    lines = [f"  {name:{width}}  {describe(entry)}" for name, entry in commands.items()]
    return "\n".join(
        [f"usage: {PROG} [--help] [--version] COMMAND ...", "", "commands:", *lines, "", _SEE_ALSO]
    )


def describe(entry: Command) -> str:
    """Return the first line of a command's docstring, read without importing the command."""
    from importlib.util import find_spec

    try:
        spec = find_spec(entry.module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        return "(not installed)"
    with open(spec.origin, encoding="utf-8") as file:
        source = file.read()
    for pattern in (_FUNCTION.format(re.escape(entry.attr)), _MODULE):
        if found := re.search(pattern, source):
            # A docstring also says what the function returns, which users need not know.
            return found[1].strip().partition("; return ")[0].rstrip(".") + "."
    return ""


if __name__ == "__main__":
    sys.exit(main())

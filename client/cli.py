"""``pliant``: one command that finds all others through the entry points ``pliant.commands``."""

from __future__ import annotations

import pliant.client.quiet  # noqa: F401

# isort: split

import ast
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version

from pliant.client.output import fail, run_command

PROG = "pliant"
GROUP = "pliant.commands"

_SEE_ALSO = """\
jobsub, jobstat, jobdel, jobctl and nodestat are commands of their own.
`pliant COMMAND --help` tells more about one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; only the one that is asked for is loaded."""
    words = sys.argv[1:] if argv is None else list(argv)
    return run_command(PROG, lambda: _run(words))


def _run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        print(f"{PROG} {version(PROG)}")
        return 0
    if words[:1] in (["-h"], ["--help"], ["help"]):
        print(_help())
        return 0
    if not words:
        fail(PROG, f"no command\n{_help()}")
        return 2
    commands = _commands()
    if words[0].startswith("-"):
        fail(PROG, f"unknown option {words[0]}\n(try `{PROG} --help`)")
        return 2
    if words[0] not in commands:
        fail(PROG, f"there is no command {words[0]!r}; there are: {', '.join(commands)}")
        return 2
    entry = commands[words[0]]
    try:
        function = entry.load()
    except ModuleNotFoundError as error:
        fail(PROG, f"{words[0]} cannot be loaded: {error}")
        return 1
    return int(function(words[1:]) or 0)


def _commands() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def _help() -> str:
    commands = _commands()
    width = max(map(len, commands), default=0)
    lines = [f"  {name:{width}}  {describe(entry)}" for name, entry in commands.items()]
    return "\n".join(
        [f"usage: {PROG} [--help] [--version] COMMAND ...", "", "commands:", *lines, "", _SEE_ALSO]
    )


def describe(entry: EntryPoint) -> str:
    """Return the first line of a command's docstring, read from its source: nothing is loaded."""
    from importlib.util import find_spec

    try:
        spec = find_spec(entry.module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        return "(not installed)"
    with open(spec.origin, "rb") as file:
        tree = ast.parse(file.read())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry.attr:
            return _first_line(ast.get_docstring(node) or ast.get_docstring(tree))
    return _first_line(ast.get_docstring(tree))


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())

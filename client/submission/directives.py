"""Options of ``jobsub`` outside the command line: ``#JOB`` directives of scripts, and defaults."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from pliant.client.client_errors import UsageError
from pliant.client.terminal.output import Parser, print_error

MARK = "#JOB"
#: Options for all users of this host.
SITE_DEFAULTS = "/etc/pliant/jobsub"
#: Bytes at the head of a script that are searched for directives.
_HEAD_BYTES = 1 << 16


class Directive(NamedTuple):
    """A line ``#JOB ...`` of a script: its number, its text, and the options in it."""

    line: int
    text: str
    words: list[str]


def read_head(path: str) -> str:
    """Return the beginning of a script; empty if the file cannot be read or is no script."""
    try:
        with open(path, "rb") as script:
            head = script.read(_HEAD_BYTES)
    except OSError:
        return ""  # the checks of the program report that
    return os.fsdecode(head) if head.startswith(b"#") or path.endswith(".sh") else ""


def parse_directives(text: str, path: str = "script") -> list[Directive]:
    """Return the ``#JOB`` directives that come before the first command of a script.

    Raises:
        UsageError: a directive has an open quote; names the line.
    """
    found: list[Directive] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if stripped.split(maxsplit=1)[:1] != [MARK]:
            continue
        found.append(_split(stripped[len(MARK) :], number, path, stripped))
    return found


def _split(options: str, number: int, path: str, line: str = "") -> Directive:
    import shlex  # here, because only scripts need it

    text = line or options.strip()
    try:
        words = shlex.split(options, comments=True)
    except ValueError as error:
        remedy = "close what is open, or put a backslash before a quote that is meant as such"
        raise UsageError(f"{path}:{number}: {text!r}: {str(error).lower()}; {remedy}") from None
    return Directive(number, text, words)


def parse_with_directives(
    words: list[str], make_parser: Callable[[type[Parser]], Parser]
) -> argparse.Namespace:
    """Parse a command line, with the directives of its script as defaults.

    Args:
        words: the command line, without the name of the command.
        make_parser: returns a parser of the given class; its option ``command`` is the program.

    Returns:
        The options. ``origins`` has the file and line of each that the command line does not set.

    Raises:
        UsageError: a directive has a wrong option or an open quote; names the line.
    """
    parser = make_parser(Parser)
    options = parser.parse_args(words)
    if options.command[:1] == ["--"]:
        del options.command[0]
    script: str | None = None
    if options.wrap:
        if options.command:
            parser.error("--wrap: the command is its value; leave out the program")
        script = f"#!/bin/sh\n{options.wrap}\n"
        lines: list[Directive] = []
    elif options.command[:1] in ([], ["-"]):
        script = _read_stdin()
        if not script:
            parser.error("no program: name one, with its arguments")
        lines = parse_directives(script, "standard input")
        _warn_of_slurm(parser, script, "standard input", lines)
    else:
        lines = _directives_of(options.command[0], parser)
    command = options.command[1:] if options.command[:1] == ["-"] else options.command
    sources = [*read_defaults(), (command[0] if command and script is None else "script", lines)]
    origins: dict[str, str] = {}
    if any(directives for _, directives in sources):
        chosen = options
        defaults = argparse.Namespace()
        for path, directives in sources:
            before = getattr(defaults, "export", None)
            defaults.export = None
            origins |= _parse_lines(path, directives, make_parser(_LineParser), defaults)
            defaults.export = defaults.export or before  # each replaces that of the one before
        exported, defaults.export = defaults.export, None
        options = parser.parse_args(words, defaults)
        options.export = chosen.export or exported
        for name in [*origins]:
            if getattr(chosen, name) != parser.get_default(name):
                del origins[name]
    options.command, options.script, options.origins = command, script, origins
    return options


def _warn_of_slurm(parser: Parser, text: str, path: str, found: list[Directive]) -> None:
    """Warn that ``#SBATCH`` lines in a script are ignored, and that there is no ``srun``.

    Args:
        parser: the parser of the command.
        text: the script.
        path: its path, for the warning.
        found: its ``#JOB`` directives. A script with both kinds is meant for both systems.
    """
    is_for_slurm = "\n#SBATCH " in text
    if found and is_for_slurm:
        return
    if is_for_slurm:
        print_error(
            parser.prog, f"{path}: lines `#SBATCH` are not read; write `{MARK}` with its options"
        )
    if "\nsrun " in text:
        print_error(parser.prog, f"{path}: `srun` does not start processes; use `pliant run`")


def _read_stdin() -> str:
    """Return the script on standard input; empty if that is a terminal or closed."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return ""
        return os.fsdecode(sys.stdin.buffer.read())
    except (OSError, ValueError):
        return ""


def read_defaults() -> list[tuple[str, list[Directive]]]:
    """Return the options of the files for this host and for this user, by path.

    Each line of a file has options of ``jobsub``; ``#`` begins a comment.

    Raises:
        UsageError: a line has an open quote; names the file and the line.
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    found = []
    for path in (SITE_DEFAULTS, os.path.join(home, "pliant", "jobsub")):
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read(_HEAD_BYTES).splitlines()
        except OSError:
            continue  # most users have none
        split = [_split(line, number, path) for number, line in enumerate(lines, start=1)]
        found.append((path, [line for line in split if line.words]))
    return found


class _LineParser(Parser):
    """Reads one directive of a script, and raises errors instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise an error, so that the caller can name the line."""
        raise UsageError(message)


def _directives_of(program: str, parser: Parser) -> list[Directive]:
    if not (program.endswith(".sh") or ("/" in program and os.path.isfile(program))):
        return []  # found in PATH: not a script of the submitter's
    head = read_head(program)
    found = parse_directives(head, program)
    _warn_of_slurm(parser, head, program, found)
    return found


def _parse_lines(
    script: str, directives: list[Directive], parser: Parser, options: argparse.Namespace
) -> dict[str, str]:
    """Apply the options of a script's directives, line by line; return the line of each option."""
    origins: dict[str, str] = {}
    for directive in directives:
        before = dict(vars(options))
        try:
            parser.parse_args(directive.words, options)
            if options.command:
                raise UsageError(f"{options.command[0]!r} is no option, and a program has no place")
        except UsageError as error:
            raise UsageError(
                f"{script}:{directive.line}: {directive.text}: {error}; write options of "
                f"{parser.prog} there, as in {MARK} -n 4 --time 2h"
            ) from None
        for name, value in vars(options).items():
            if value != before.get(name, parser.get_default(name)) and name != "command":
                origins[name] = f"{script}:{directive.line}"
    return origins

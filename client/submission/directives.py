"""Options of ``jobsub`` outside the command line: ``#JOB`` directives of scripts, and defaults."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from pliant.client.client_errors import UsageError
from pliant.client.submission.file_checks import SCRIPT_SUFFIXES, find_in_path
from pliant.client.terminal.output import Parser

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import NoReturn

MARK = "#JOB"
#: Options for all users of this host.
SITE_DEFAULTS = "/etc/pliant/jobsub"
#: Bytes at the head of a script that are searched for directives.
_HEAD_BYTES = 1 << 16


class Directive:
    """A line ``#JOB ...`` of a script: its number, its text, and the options in it."""

    def __init__(self, line: int, text: str, words: list[str]) -> None:
        self.line, self.text, self.words = line, text, words


def read_head(path: str) -> str:
    """Return the first `_HEAD_BYTES` of a script; empty if it cannot be read or is no script."""
    try:
        with open(path, "rb") as script:
            head = script.read(_HEAD_BYTES)
    except OSError:
        return ""  # the checks of the program report that
    return os.fsdecode(head) if head.startswith(b"#") or path.endswith(SCRIPT_SUFFIXES) else ""


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
        The options. For each option that was set by a directive or by a file of defaults, their
        attribute ``origins`` maps its name to the line that set it, as ``FILE:LINE``.

    Raises:
        UsageError: a directive has a wrong option or an open quote, or the script has only
            directives of another system; names the line.
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
        text, path, lines = "", "", list[Directive]()
    elif options.command[:1] in ([], ["-"]):
        script = _read_stdin()
        if not script:
            parser.error("no program: name one, with its arguments")
        text, path = script, "standard input"
        lines = parse_directives(text, path)
    else:
        path = options.command[0]
        text = _head_of(path)
        lines = parse_directives(text, path)
    command = options.command[1:] if options.command[:1] == ["-"] else options.command
    sources = [*read_defaults(), (command[0] if command and script is None else "script", lines)]
    origins: dict[str, str] = {}
    if any(directives for _, directives in sources):
        chosen = options
        defaults = argparse.Namespace()
        for source, directives in sources:
            before = getattr(defaults, "export", None)
            defaults.export = None
            origins |= _parse_lines(source, directives, make_parser(_LineParser), defaults)
            defaults.export = defaults.export or before  # each replaces that of the one before
        exported, defaults.export = defaults.export, None
        options = parser.parse_args(words, defaults)
        options.export = chosen.export or exported
        for name in [*origins]:
            if getattr(chosen, name) != parser.get_default(name):
                del origins[name]
    options.command, options.script, options.origins = command, script, origins
    _check_other_systems(options, parser, text, path, lines)
    return options


def _check_other_systems(
    options: argparse.Namespace, parser: Parser, text: str, path: str, found: list[Directive]
) -> None:
    """Refuse a script that has only directives of other systems, such as ``#SBATCH``.

    A script that has ``#JOB`` lines as well is not refused, because it is meant for both systems.
    Print a warning for lines that have no effect here.

    Args:
        options: the options from all sources.
        parser: the parser of the command.
        text: the script.
        path: its path, for messages.
        found: its ``#JOB`` directives.
    """
    if "#" not in text and "srun" not in text and "SLURM" not in text:
        return
    from pliant.client.submission import foreign_scripts

    if not found and not options.ignore_other_directives:
        foreign_scripts.refuse_other_directives(text, path, parser)
    for_both = bool(found) and foreign_scripts.has_other_directives(text)
    foreign_scripts.warn_of_useless_lines(text, path, parser.prog, for_both=for_both)


def _read_stdin() -> str:
    """Return the script on standard input; empty if that is a terminal or closed."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return ""
        return os.fsdecode(sys.stdin.buffer.read())
    except (OSError, ValueError):
        return ""


def read_defaults() -> list[tuple[str, list[Directive]]]:
    """Return the default options of ``jobsub`` from files for this host and this user, by path.

    Each line of a file has options of ``jobsub``; ``#`` begins a comment.

    Raises:
        UsageError: a line has an open quote; the message names the file and the line.
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


def _head_of(program: str) -> str:
    """Return the beginning of a job script; empty if ``program`` names none.

    Args:
        program: the first word of the command line. It names no job script if a folder of PATH has
            a program of this name, or if the file is not a script.
    """
    if "/" not in program and find_in_path(program, os.environ.get("PATH", os.defpath), "."):
        return ""  # not a script of the submitter's
    return read_head(program) if os.path.isfile(program) else ""


def _parse_lines(
    script: str, directives: list[Directive], parser: Parser, options: argparse.Namespace
) -> dict[str, str]:
    """Parse the directives of a script into ``options``, in their order.

    Returns:
        The place ``SCRIPT:LINE`` of the directive that set an option last, by the option's name.
    """
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

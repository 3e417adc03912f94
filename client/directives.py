"""``#JOB`` directives: options of ``jobsub`` at the head of a script."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from pliant.client.errors import SubmitError, UsageError
from pliant.client.terminal.output import Parser

MARK = "#JOB"
#: Bytes at the head of a script that are searched for directives.
_HEAD_BYTES = 1 << 16


class Directive(NamedTuple):
    """A line ``#JOB ...`` of a script: its number, its text, and the options in it."""

    line: int
    text: str
    words: list[str]


def read_directives(path: str) -> list[Directive]:
    """Return the directives of a script; empty if it cannot be read."""
    try:
        with open(path, "rb") as script:
            head = script.read(_HEAD_BYTES)
    except OSError:
        return []  # the checks of the program report that
    if not (head.startswith(b"#") or path.endswith(".sh")):
        return []
    return parse_directives(os.fsdecode(head), path)


def parse_directives(text: str, path: str = "script") -> list[Directive]:
    """Return all directives before the first line that is neither comment nor blank.

    Raises:
        SubmitError: a directive has an open quote; names the line.
    """
    import shlex  # here, because only scripts need it

    found: list[Directive] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if stripped.split(maxsplit=1)[:1] != [MARK]:
            continue
        try:
            words = shlex.split(stripped[len(MARK) :], comments=True)
        except ValueError as error:
            remedy = "close what is open, or put a backslash before a quote that is meant as such"
            fault = f"{stripped!r}: {str(error).lower()}"
            raise SubmitError(f"{path}:{number}", fault, remedy) from None
        found.append(Directive(number, stripped, words))
    return found


def parse_with_directives(
    words: list[str], make_parser: Callable[[type[Parser]], Parser]
) -> argparse.Namespace:
    """Parse a command line, with the directives of its script as defaults.

    Args:
        words: the command line, without the name of the command.
        make_parser: returns a parser of the given class; its option ``command`` is the program.

    Raises:
        UsageError: a directive has a wrong option; names the line.
        SubmitError: a directive has an open quote; names the line.
    """
    parser = make_parser(Parser)
    options = parser.parse_args(words)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        parser.error("no program: name one, with its arguments")
    directives = _directives_of(options.command[0])
    if not directives:
        return options
    defaults = _parse_lines(options.command[0], directives, make_parser(_LineParser))
    merged = parser.parse_args(words, defaults)
    merged.command = options.command
    merged.export = options.export or merged.export  # the command line's replaces the script's
    return merged


class _LineParser(Parser):
    """Reads one directive of a script, and raises errors instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise an error, so that the caller can name the line."""
        raise UsageError(message)


def _directives_of(program: str) -> list[Directive]:
    if not (program.endswith(".sh") or ("/" in program and os.path.isfile(program))):
        return []  # found in PATH: not a script of the submitter's
    return read_directives(program)


def _parse_lines(script: str, directives: list[Directive], parser: Parser) -> argparse.Namespace:
    """Return the options of the directives of a script, line by line."""
    options = argparse.Namespace()
    for directive in directives:
        try:
            parser.parse_args(directive.words, options)
            if options.command:
                raise UsageError(f"{options.command[0]!r} is no option, and a program has no place")
        except UsageError as error:
            raise UsageError(
                f"{script}:{directive.line}: {directive.text}: {error}; write options of "
                f"{parser.prog} there, as in {MARK} -n 4 --time 2h"
            ) from None
    return options

"""The base of every command's argument parser: it says that an unknown option is unknown.

argparse checks positional arguments before it reports what it did not recognise, so
``jobstat -u root`` failed with "'root' is not the number of a job". This parser looks for an option
that it does not have before argparse sees the words.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

_NUMBER = r"-\d+(\.\d*)?|-\.\d+"

#: How similar an option must be to one that exists: two letters exchanged or one wrong, not more.
_NEAR = 0.82
#: A longer beginning of an option, with its dashes, also names it.
_SHORTEST = 4

#: Parsers that were asked for help, while `CollectedParsers` is active.
_collected: list[argparse.ArgumentParser] | None = None


class _Version(argparse.Action):
    """The action of ``--version``: prints the package's version, imported only now, and exits."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS})

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the name of the command and the version."""
        from pliant import __version__

        print(f"{parser.prog} {__version__}")
        parser.exit()


class CommandParser(argparse.ArgumentParser):
    """An argument parser that takes no abbreviations and names an unknown option first."""

    def __init__(self, *, hints: Callable[[str], str] | None = None, **settings: Any) -> None:
        """Create a parser.

        Args:
            hints: returns what to type instead of an option that the parser does not have; empty
                if nothing is known.
            settings: those of argparse.
        """
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)
        self._hints = hints
        if self.add_help:
            self.add_argument("--version", action=_Version, nargs=0, help="print the version")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words as argparse does, but report an unknown option as an error first."""
        words = sys.argv[1:] if args is None else list(args)
        unknown = unknown_option(self, words)
        if unknown:
            known = self._hints(unknown) if self._hints is not None else ""
            self.error(f"unknown option {unknown}{f'; {known}' if known else _hint(self, unknown)}")
        return super().parse_known_args(words, namespace)

    def print_help(self, file: Any = None) -> None:
        """Print the help; while a `CollectedParsers` is active, add this parser to it instead."""
        if _collected is not None:
            _collected.append(self)
        else:
            super().print_help(file)


class CollectedParsers:
    """Context in which parsers that are asked for help are put into a list and print nothing.

    ``with CollectedParsers() as parsers`` binds the list.
    """

    def __enter__(self) -> list[argparse.ArgumentParser]:
        global _collected  # noqa: PLW0603 - parsers are made deep inside of commands
        _collected = []
        return _collected

    def __exit__(self, *_: object) -> None:
        global _collected  # noqa: PLW0603
        _collected = None


def unknown_option(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Return the first option that a parser does not know; empty if it knows all.

    Words after ``--`` and values of options do not count as options. A program or a subcommand has
    options of its own, so the words after it do not count either.
    """
    known = parser._option_string_actions  # argparse has no public list of options
    ends = any(action.nargs in (argparse.REMAINDER, argparse.PARSER) for action in parser._actions)
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        if not word.startswith("-") or word == "-" or " " in word or re.fullmatch(_NUMBER, word):
            if ends:
                break
            continue
        name, equals, _ = word.partition("=")
        if name in known:
            _skip_values(known[name], rest, has_value=bool(equals))
        elif word.startswith("--"):
            return name
        elif unknown := _unknown_letter(known, word, rest):
            return unknown
    return ""


def _unknown_letter(known: dict[str, argparse.Action], word: str, rest: Iterator[str]) -> str:
    """Return the first unknown option of letters written together, as in ``-aw``; empty if none.

    Args:
        known: the options of the parser, such as ``-a``.
        word: the letters with their dash.
        rest: the words that follow; those that are values of the last letter are skipped.
    """
    for place, letter in enumerate(word[1:], start=2):
        action = known.get(f"-{letter}")
        if action is None:
            return f"-{letter}"
        if action.nargs != 0:
            _skip_values(action, rest, has_value=place < len(word))
            break
    return ""


def _skip_values(action: argparse.Action, rest: Iterator[str], *, has_value: bool) -> None:
    """Skip the words that are values of an option; optional values are not skipped.

    Args:
        action: the option.
        rest: the words that follow.
        has_value: whether the value is in the same word, as in ``-n4``.
    """
    if has_value:
        return
    count = 1 if action.nargs is None else action.nargs if isinstance(action.nargs, int) else 0
    for _ in range(count):
        next(rest, None)


def _hint(parser: argparse.ArgumentParser, unknown: str) -> str:
    """Return a sentence about the option that may have been meant; empty if none is similar."""
    if not unknown.startswith("--"):
        return ""
    from difflib import get_close_matches

    known = [name for name in parser._option_string_actions if name.startswith("--")]
    close = get_close_matches(unknown, known, n=1, cutoff=_NEAR)
    if not close and len(unknown) > _SHORTEST:
        close = [name for name in known if name.startswith(unknown)]
    return f"; did you mean {close[0]}?" if close else ""

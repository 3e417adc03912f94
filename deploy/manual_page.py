"""Manual pages in the roff format, made from the parsers of the commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

SECTION = 1


def make_page(name: str, parser: argparse.ArgumentParser, version: str, summary: str) -> str:
    """Return the manual page of a command.

    Args:
        name: the name of the page, such as ``pliant-server``.
        parser: the parser of the command; its subcommands become sections.
        version: the version of Pliant.
        summary: one line; empty for the first sentence of the parser's description.
    """
    described = _help_text(parser, parser.description or "")
    first = summary or re.split(r"(?<=\.)\s", described, maxsplit=1)[0]
    return make_plain_page(
        name, version, first, [*_body(parser, described), *_subcommands(parser), *_epilog(parser)]
    )


def make_plain_page(name: str, version: str, summary: str, body: list[str]) -> str:
    """Return a manual page that consists of a head and the given body in roff."""
    lines = [
        f'.TH "{escape(name.upper())}" "{SECTION}" "" "Pliant {escape(version)}" "Pliant"',
        ".SH NAME",
        rf"{escape(name)} \- {escape(summary.rstrip('.'))}",
        *body,
        *([] if name == "pliant" else [".SH SEE ALSO", rf"\fBpliant\fR({SECTION})"]),
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return a text in which the characters that are special in roff are escaped."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    # A dot or quote at the start of a line would be a request of roff.
    return re.sub(r"(?m)^(?=[.'])", r"\\&", escaped)


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a command's subcommands, by name."""
    for action in parser._actions:  # argparse has no public list
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _body(parser: argparse.ArgumentParser, described: str) -> list[str]:
    lines = [".SH SYNOPSIS", *_usage(parser)]
    if described:
        lines += [".SH DESCRIPTION", escape(described)]
    if options := list(_options(parser)):
        lines += [".SH OPTIONS", *options]
    return lines


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[str]:
    found = subparsers(parser)
    if found:
        yield ".SH COMMANDS"
    for name, each in found.items():
        yield f'.SS "{escape(name)}"'
        yield from _usage(each)
        yield from (".PP", escape(_help_text(each, each.description or "")))
        yield from _options(each)


def _epilog(parser: argparse.ArgumentParser) -> list[str]:
    if not parser.epilog:
        return []
    return [".SH NOTES", ".nf", escape(_help_text(parser, parser.epilog)), ".fi"]


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    text = parser.format_usage().removeprefix("usage: ").strip()
    return [".nf", escape(text), ".fi"]


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        hidden = action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction)
        if not hidden:
            yield ".TP"
            yield rf"\fB{escape(formatter._format_action_invocation(action))}\fR"
            yield escape(formatter._expand_help(action) if action.help else "")


def _help_text(parser: argparse.ArgumentParser, text: str) -> str:
    return text.replace("%(prog)s", parser.prog).strip()

"""The reference of the commands: one Markdown page for each, made from its argparse parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from markdown_text import escape

from pliant.client.commands.cli import describe
from pliant.client.shell_completion import find_parser
from pliant.deploy.man_command import find_all_commands
from pliant.deploy.manual_page import subparsers


def make_pages() -> Mapping[str, str]:
    """Return the text of each page by its path, such as ``commands/jobsub.md``."""
    return {
        f"commands/{name}.md": make_page(find_parser(command.load()), describe(command))
        for name, command in find_all_commands().items()
    }


def make_page(parser: argparse.ArgumentParser, summary: str) -> str:
    """Return the page of a command.

    Args:
        parser: the parser of the command; its subcommands become sections.
        summary: one sentence, for a parser without a description.
    """
    lines = [f"# {parser.prog}", "", *_described(parser, summary)]
    for found in _all_parsers(parser):
        if found is not parser:
            lines += [f"## {found.prog}", "", *_described(found, "")]
        lines += ["```text", _usage(found), "```", ""]
        lines += [f"```{{program}} {found.prog}", "```", "", *_options(found), *_epilog(found)]
    return "\n".join(lines)


def _all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser, then those of its subcommands, at any depth."""
    yield parser
    # An alias names the same parser again.
    for each in {id(found): found for found in subparsers(parser).values()}.values():
        yield from _all_parsers(each)


def _described(parser: argparse.ArgumentParser, summary: str) -> list[str]:
    text = _expanded(parser, parser.description or summary)
    return [*escape(text).splitlines(), ""] if text else []


def _usage(parser: argparse.ArgumentParser) -> str:
    return parser.format_usage().removeprefix("usage: ").strip()


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()  # argparse has no public list of options
    for action in parser._actions:
        is_hidden = action.help == argparse.SUPPRESS
        if is_hidden or isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        about = formatter._expand_help(action) if action.help else ""
        yield f"````{{option}} {_invocation(formatter, action)}"
        yield from (escape(about), "````", "")


def _invocation(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    if action.option_strings:
        return formatter._format_action_invocation(action)
    # A positional argument, which the formatter writes without its number: FILE, not FILE ...
    return str(action.metavar or action.dest)


def _epilog(parser: argparse.ArgumentParser) -> list[str]:
    text = _expanded(parser, parser.epilog or "")
    return ["```text", text, "```", ""] if text else []


def _expanded(parser: argparse.ArgumentParser, text: str) -> str:
    return text.replace("%(prog)s", parser.prog).strip()

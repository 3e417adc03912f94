"""``pliant deploy man``: write the manual pages of all commands and daemons."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pliant.client.client_errors import ClientError
from pliant.client.commands.cli import describe
from pliant.client.commands.entry_points import Command, find_commands
from pliant.client.shell_completion import find_parser
from pliant.client.terminal.output import print_text
from pliant.deploy.manual_page import SECTION, escape, make_page, make_plain_page

#: The helper has an interpreter of its own, so the parser of `pliant node` does not have its
#: options.
_HELPER = Command("node-helper", "pliant.nodectl.root_helper.__main__", "main")
_SUMMARY = "a resource manager for MPI jobs that change size while they run"


def add_man_action(actions: Any) -> None:
    """Add the action ``man`` to the parser of ``pliant deploy``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "man",
        help="write manual pages",
        description="Write a manual page for each command and daemon, made from its options.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the pages, such as /usr/local/share/man/man1",
    )
    parser.set_defaults(act=_man)


def _man(options: argparse.Namespace) -> int:
    pages = make_pages()
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (options.output / f"{name}.{SECTION}").write_text(text, encoding="utf-8")
    except OSError as error:
        raise ClientError(f"{error.filename}: {(error.strerror or '').lower()}") from None
    print_text(f"{len(pages)} manual pages are in {options.output}")
    return 0


def make_pages() -> Mapping[str, str]:
    """Return the text of each manual page by its name.

    Raises:
        ClientError: a command has no parser.
    """
    from pliant import __version__ as number

    commands = find_all_commands()
    pages = {
        name: make_page(name, find_parser(command.load()), number, describe(command))
        for name, command in commands.items()
    }
    summaries = {name: describe(command) for name, command in commands.items()}
    return {"pliant": make_plain_page("pliant", number, _SUMMARY, list(_list(summaries))), **pages}


def find_all_commands() -> dict[str, Command]:
    """Return the commands and daemons except `pliant` itself, by the name of their manual page."""
    commands = {f"pliant-{each.name}": each for each in (*find_commands().values(), _HELPER)}
    return commands | {each.name: each for each in _scripts() if each.name != "pliant"}


def _scripts() -> Iterator[Command]:
    from importlib.metadata import entry_points

    for entry in entry_points(group="console_scripts"):
        if entry.module.startswith("pliant."):
            yield Command(entry.name, entry.module, entry.attr)


def _list(summaries: Mapping[str, str]) -> Iterator[str]:
    yield from (".SH SYNOPSIS", r"\fBpliant\fR COMMAND ...", ".SH COMMANDS")
    for name, summary in sorted(summaries.items()):
        yield from (".TP", rf"\fB{escape(name)}\fR({SECTION})", escape(summary))

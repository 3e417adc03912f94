"""Shared by the actions of ``pliant cluster``: common options, directories and lines of output."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.paths import state_dir
from pliant.client.terminal.output import print_text
from pliant.client.terminal.tables import clean


def add_action(actions: Any, name: str, text: str, act: Any) -> argparse.ArgumentParser:
    """Add an action of ``pliant cluster``, with the options common to all; return its parser.

    Args:
        actions: the subparsers of ``pliant cluster``.
        name: the word that names the action on the command line.
        text: its help, in one line.
        act: the function that carries out the action.
    """
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="of the cluster's keys and certificates ($PLIANT_STATE_DIR/identity)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(act=act)
    return parser


def directory_of(options: argparse.Namespace) -> Path:
    """Return the directory of the cluster's identity: ``--directory``, or that of this server."""
    if options.directory is None:
        return Path(state_dir(), "identity")
    if not options.directory or "\0" in options.directory:
        raise UsageError("--directory: name a directory")
    return Path(os.path.abspath(options.directory))


def changed_directory_of(options: argparse.Namespace) -> Path:
    """Return the directory of the cluster's identity, for an action that writes files there.

    Raises:
        ClientError: the directory belongs to another account, whose server could not read files
            that this account writes.
    """
    directory = directory_of(options)
    try:
        owner = directory.stat().st_uid
    except OSError:
        return directory  # a message with the remedy follows
    if owner != os.geteuid():
        raise ClientError(
            f"{directory} belongs to {_user_name(owner)}, as which the server runs: run this "
            "command as that user"
        )
    return directory


def print_lines(lines: list[str]) -> None:
    """Print lines, with control characters escaped."""
    for line in lines:
        print_text(clean(line))


def format_day(seconds: float) -> str:
    """Return the date of a time in seconds since the epoch, in UTC."""
    import time

    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _user_name(number: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user with id {number}"

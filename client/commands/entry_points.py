"""The subcommands of ``pliant``: the entry points of the group ``pliant.commands``.

They are read from the folders of ``sys.path`` directly. ``importlib.metadata`` knows more kinds of
installations, but its import takes 20 to 40 ms, more than everything else that `pliant --help`
does. It is asked when the folders hold no command at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

GROUP = "pliant.commands"

_METADATA = (".dist-info", ".egg-info")
_FILE = "entry_points.txt"


class Command(NamedTuple):
    """A subcommand of ``pliant``: its name, and the function that runs it, by module and name."""

    name: str
    module: str
    attr: str

    def load(self) -> Callable[[list[str]], Any]:
        """Import the function and return it.

        Raises:
            ModuleNotFoundError: its module, or one that it needs, is not installed.
        """
        from importlib import import_module

        function: Callable[[list[str]], Any] = getattr(import_module(self.module), self.attr)
        return function


def find_commands() -> dict[str, Command]:
    """Return the installed subcommands by name; of equal names, the first on ``sys.path`` wins."""
    found: dict[str, Command] = {}
    for folder in sys.path:
        for text in _entry_point_texts(folder or "."):
            for command in parse_commands(text):
                found.setdefault(command.name, command)
    return dict(sorted((found or _from_metadata()).items()))


def _entry_point_texts(folder: str) -> Iterator[str]:
    """Yield the text of each ``entry_points.txt`` of the distributions installed in a folder."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_METADATA))
    except OSError:
        return  # a zip file, or nothing
    for name in names:
        try:
            with open(os.path.join(folder, name, _FILE), encoding="utf-8") as file:
                yield file.read()
        except OSError:
            continue  # most distributions have none


def parse_commands(text: str) -> Iterator[Command]:
    """Yield the commands of an ``entry_points.txt``, ignoring lines of other groups."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group == GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            module, _, attr = target.partition("[")[0].strip().partition(":")
            yield Command(name.strip(), module.strip(), attr.strip())


def _from_metadata() -> dict[str, Command]:
    from importlib.metadata import entry_points

    return {
        entry.name: Command(entry.name, entry.module, entry.attr)
        for entry in entry_points(group=GROUP)
    }

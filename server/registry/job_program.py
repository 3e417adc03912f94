"""The program of a job: stored in the database and sent to the nodes, unknown to the core."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: Lists show this many characters of a command line.
COMMAND_SHOWN = 200


class Summary(NamedTuple):
    """The part of a program that lists of jobs show: output file, folder and command line."""

    stdout: str
    cwd: str
    command: str

    def to_json(self) -> str:
        """Return the object as JSON in ASCII. Bytes that are not UTF-8 survive as escapes."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Return the object from the JSON text that ``to_json`` returned."""
        values = json.loads(text)
        return cls(**{name: values[name] for name in cls._fields})


@dataclass(frozen=True, slots=True)
class Program:
    """Command line, environment and files of a job.

    Bytes that are no valid UTF-8 are kept as surrogate escapes.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdin: str
    stdout: str
    stderr: str
    umask: int
    #: ``truncate`` if the first run empties its output files, else ``append``.
    open_mode: str = "truncate"
    #: How ranks are bound to CPUs: ``rank``, ``node`` or ``none``, see `StartWorld.bind`.
    bind: str = "rank"
    #: Whether names of files have marks that each node replaces.
    files_by_node: bool = False

    def to_json(self) -> str:
        """Return the object as JSON in ASCII. Bytes that are not UTF-8 survive as escapes."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Return the object from the JSON text that ``to_json`` returned."""
        values = json.loads(text)
        values["argv"] = tuple(values["argv"])
        return cls(**{name: values[name] for name in cls.__slots__ if name in values})

    def summary(self) -> Summary:
        """Return the part that lists show."""
        return Summary(self.stdout, self.cwd, shlex.join(self.argv)[:COMMAND_SHOWN])

    def environment(self, **defaults: str) -> list[bytes]:
        """Return the variables for the job's processes as ``NAME=value`` in bytes.

        The job's own variables take precedence over the defaults. Empty defaults are left out.
        """
        merged = {**{name: value for name, value in defaults.items() if value}, **self.env}
        return [os.fsencode(f"{name}={value}") for name, value in merged.items()]


#: Marks in names of files that each node replaces by its own values.
NODE_MARKS = frozenset({"%N", "%n"})


def names_node(pattern: str) -> bool:
    """Return whether a file name contains a mark that each node replaces, such as ``%N``."""
    pieces = pattern.split("%%")
    return any(mark in piece for piece in pieces for mark in NODE_MARKS)


def job_marks(job: int, name: str, user: str) -> dict[str, str]:
    """Return the values of those marks in file names that are the same on all nodes (``%j``)."""
    # A name with a slash must not lead to another folder.
    return {
        "%j": str(job),
        "%A": str(job),
        "%x": name.replace("/", "_"),
        "%u": user.replace("/", "_"),
    }


def node_marks(node: str, number: int) -> dict[str, str]:
    """Return the values of those marks in file names that differ between nodes (``%N``, ``%n``).

    Args:
        node: its name.
        number: its place among the nodes of the job, from 0.
    """
    return {"%N": node.replace("/", "_"), "%n": str(number)}


def expand(pattern: str, values: Mapping[str, str], keep: frozenset[str] = frozenset()) -> str:
    """Return a file name in which marks are replaced by their values, and ``%%`` by a percent.

    If ``keep`` names marks that are replaced later, ``%%`` is kept, too. Unknown marks are kept.
    """
    known = values if keep else {**values, "%%": "%"}
    result, start = [], 0
    while (place := pattern.find("%", start)) >= 0:
        mark = pattern[place : place + 2]
        result += [pattern[start:place], known.get(mark, mark)]
        start = place + 2
    return "".join(result) + pattern[start:]

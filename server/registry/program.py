"""What a job runs: kept in the database, sent to the nodes, never looked into by the core."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: What lists show of a command line.
COMMAND_SHOWN = 200


class Summary(NamedTuple):
    """The part of a program that lists show."""

    stdout: str
    cwd: str
    command: str

    def to_json(self) -> str:
        """Pure ASCII, so that undecodable bytes survive."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Read what ``to_json`` wrote."""
        values = json.loads(text)
        return cls(**{name: values[name] for name in cls._fields})


@dataclass(frozen=True, slots=True)
class Program:
    """Command line, environment and files. Bytes that are not text travel as surrogate escapes."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdin: str
    stdout: str
    stderr: str
    umask: int
    #: Whether the first run empties its output files: ``truncate`` or ``append``.
    open_mode: str = "truncate"

    def to_json(self) -> str:
        """Pure ASCII, so that undecodable bytes survive."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Read what ``to_json`` wrote."""
        values = json.loads(text)
        values["argv"] = tuple(values["argv"])
        return cls(**{name: values[name] for name in cls.__slots__ if name in values})

    def summary(self) -> Summary:
        """The part that lists show."""
        return Summary(self.stdout, self.cwd, shlex.join(self.argv)[:COMMAND_SHOWN])

    def environment(self, **defaults: str) -> list[bytes]:
        """``NAME=value`` in bytes; the job's own variables go before the defaults."""
        merged = {**{name: value for name, value in defaults.items() if value}, **self.env}
        return [os.fsencode(f"{name}={value}") for name, value in merged.items()]


def expand(pattern: str, job: int, name: str) -> str:
    """Put the job's number for ``%j``, its name for ``%x``; ``%%`` is a percent sign."""
    # A name is no path: it must not lead to another folder.
    values = {"%j": str(job), "%x": name.replace("/", "_"), "%%": "%"}
    result, start = [], 0
    while (place := pattern.find("%", start)) >= 0:
        mark = pattern[place : place + 2]
        result += [pattern[start:place], values.get(mark, mark)]
        start = place + 2
    return "".join(result) + pattern[start:]

"""The programs of waiting jobs, from memory or from the database."""

from __future__ import annotations

from collections import OrderedDict

from pliant.core.values.ids import JobId
from pliant.server.database.reader import Reader
from pliant.server.registry.program import Program

#: Programs kept in memory between submission and start; the others are read again.
MAX_CACHED_PROGRAMS = 512


class ProgramCache:
    """What jobs run, from memory or from the database."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: OrderedDict[JobId, Program] = OrderedDict()

    def keep(self, job: JobId, program: Program) -> None:
        """Remember a program that will soon be started."""
        self._kept[job] = program
        while len(self._kept) > MAX_CACHED_PROGRAMS:
            self._kept.popitem(last=False)

    def get(self, job: JobId) -> Program:
        """The program of a job that was stored."""
        program = self._kept.get(job) or self._reader.program(job)
        if program is None:
            raise KeyError(f"job {job} is not in the database")
        return program

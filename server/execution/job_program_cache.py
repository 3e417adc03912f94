"""The programs of waiting jobs, from memory or from the database."""

from __future__ import annotations

from collections import OrderedDict

from pliant.core.values.ids import JobId
from pliant.server.database.reader import Reader
from pliant.server.registry.job_program import Program

#: Maximum number of programs in memory. Others are read from the database at their start.
MAX_CACHED_PROGRAMS = 512


class ProgramCache:
    """Keeps the programs of jobs in memory between submission and start."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: OrderedDict[JobId, Program] = OrderedDict()

    def keep(self, job: JobId, program: Program) -> None:
        """Put the program of a job into the cache, because the job will probably start soon."""
        self._kept[job] = program
        while len(self._kept) > MAX_CACHED_PROGRAMS:
            self._kept.popitem(last=False)

    def get_of_task(self, array: JobId, task: int) -> Program:
        """Return the program of a task, from that of its array.

        Raises:
            KeyError: if the array is not in the database.
        """
        whole = self.get(array)
        self.keep(array, whole)
        self._kept.move_to_end(array)  # the next tasks start soon
        return whole.of_task(array, task)

    def get(self, job: JobId) -> Program:
        """Return the program of a stored job.

        Raises:
            KeyError: if the job is not in the database.
        """
        program = self._kept.get(job) or self._reader.program(job)
        if program is None:
            raise KeyError(f"job {job} is not in the database")
        return program

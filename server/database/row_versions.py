"""Compare and set: an update of a job must find the row as this server left it.

There is one writer, and a lock keeps a second server away. Should a row have changed all the same
- a lock that a network file system does not honour, an administrator's hand, a fault of ours - the
change is refused and the server ends, rather than overwrite what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable

from pliant.core.model.jobs import Job, JobSpec
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.server.database.statements import Row, Write, update_job


class RowVersions:
    """What the database says of each job that has not ended, or will say when all is written."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        """Remember jobs as they were read from the database, before they change."""
        self._rows: dict[JobId, Row] = {}
        for job in jobs:
            self.remember(job)

    def remember(self, job: Job) -> None:
        """A job as it was read, before anything is done with it."""
        self._rows[job.id] = Row.of(job)

    def remember_submitted(self, spec: JobSpec, *, held: bool) -> None:
        """A job that was stored when it was accepted."""
        self.remember(Job(spec, JobState.HELD if held else JobState.PENDING))

    def compare_and_set(self, job: Job) -> Write:
        """Return the change that makes the row say what the job is now."""
        was = self._rows[job.id]
        self.remember(job)
        return update_job(job, was)

    def forget(self, job: JobId) -> None:
        """The job has ended, its row will not change any more."""
        self._rows.pop(job, None)

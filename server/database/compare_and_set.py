"""Compare and set: an update of a job is refused unless the row is as this server left it.

There is one writer, and a lock keeps a second server away. A row can still be changed by others:
if a network file system ignores the lock, if an administrator edits the database, or through a bug.
The server then ends instead of overwriting a state that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pliant.core.model.jobs import Job, JobSpec
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.server.database.statements import RowVersion, Write, insert_task, update_job
from pliant.server.registry.job_program import Summary


class RowVersions:
    """The version that each open job's row in the database must have at its next update.

    The version is the job's state, run and epoch. If the row has another one, another process has
    changed it.
    """

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        """Set the expected version of these jobs, which were just read from the database."""
        self._rows: dict[JobId, RowVersion] = {}
        for job in jobs:
            self.remember(job)

    def remember(self, job: Job) -> None:
        """Record that the row of a job now has the version (state, run and epoch) of ``job``."""
        self._rows[job.id] = RowVersion.of(job)

    def remember_submitted(self, spec: JobSpec, *, held: bool) -> None:
        """Set the expected version of a job that was just stored by its submission.

        Args:
            spec: the specification of the job.
            held: whether the job was submitted as held, so that it waits until it is released.
        """
        self.remember(Job(spec, JobState.HELD if held else JobState.PENDING))

    def write(self, job: Job, summary_of: Callable[[Job], Summary]) -> Write:
        """Return the statement that stores a job's state: an update, or an insert for a new task.

        Args:
            job: the job. If it is a task of an array, it may not have a row yet.
            summary_of: returns output file, folder and command line of a task, for lists of jobs.
        """
        if job.spec.array and job.id not in self._rows:
            self.remember(job)
            return insert_task(job, summary_of(job))
        return self.compare_and_set(job)

    def compare_and_set(self, job: Job) -> Write:
        """Return the statement that updates a job's row if it still has the expected version.

        Afterwards, the version that this statement writes is the expected one.
        """
        was = self._rows[job.id]
        self.remember(job)
        return update_job(job, was)

    def forget(self, job: JobId) -> None:
        """Drop a job that has ended. Its row will not be updated again."""
        self._rows.pop(job, None)

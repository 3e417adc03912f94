"""Compare and set: an update of a job is refused unless the row is as this server left it.

There is one writer, and a lock keeps a second server away. A row can still be changed by others:
if a network file system ignores the lock, if an administrator edits the database, or through a bug.
The server then ends instead of overwriting a state that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable

from pliant.core.model.jobs import Job, JobSpec
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.server.database.statements import RowVersion, Write, update_job


class RowVersions:
    """The expected version of each open job's row in the database, to detect foreign changes."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        """Remember jobs as they were read from the database, before they change."""
        self._rows: dict[JobId, RowVersion] = {}
        for job in jobs:
            self.remember(job)

    def remember(self, job: Job) -> None:
        """Remember the present state of a job as the version that its row now has."""
        self._rows[job.id] = RowVersion.of(job)

    def remember_submitted(self, spec: JobSpec, *, held: bool) -> None:
        """Set the expected version of a job that was just stored by its submission.

        Args:
            spec: the specification of the job.
            held: whether the job was submitted as a held one.
        """
        self.remember(Job(spec, JobState.HELD if held else JobState.PENDING))

    def compare_and_set(self, job: Job) -> Write:
        """Return the write that updates a job's row if it still has the expected version.

        The new version is expected from then on.
        """
        was = self._rows[job.id]
        self.remember(job)
        return update_job(job, was)

    def forget(self, job: JobId) -> None:
        """Drop a job that has ended. Its row will not be updated again."""
        self._rows.pop(job, None)

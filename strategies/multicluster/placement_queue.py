"""The placement queue: jobs that could not be placed, and how often they were tried (KOALA 4.1)."""

from collections.abc import Iterator

from pliant.core.values.ids import JobId


class PlacementQueue:
    """Jobs in the order in which they are tried.

    Args:
        max_tries: a job with more failed tries than this is given up; None for no limit.
    """

    def __init__(self, max_tries: int | None = None) -> None:
        self._max_tries = max_tries
        self._jobs: dict[JobId, None] = {}
        self._tries: dict[JobId, int] = {}

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def append(self, job: JobId) -> None:
        """Append a job to the tail of the queue."""
        self._jobs.pop(job, None)
        self._jobs[job] = None

    def remove(self, job: JobId) -> None:
        """Remove a job that has been placed. Its failed tries still count."""
        self._jobs.pop(job, None)

    def forget(self, job: JobId) -> None:
        """Remove a job that has started or ended, and the count of its tries."""
        self._jobs.pop(job, None)
        self._tries.pop(job, None)

    def count_failure(self, job: JobId) -> bool:
        """Count a failed try to place a job. Return whether it failed too often and is given up."""
        self._tries[job] = self.tries(job) + 1
        return self._max_tries is not None and self._tries[job] > self._max_tries

    def tries(self, job: JobId) -> int:
        """Return the number of failed tries to place a job or to claim its processors."""
        return self._tries.get(job, 0)

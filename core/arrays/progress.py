"""The progress of a job array: which tasks wait, which are jobs, and how the others ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from pliant.core.arrays.task_numbers import TaskNumbers
from pliant.core.values.ids import JobId


@dataclass(slots=True)
class ArrayProgress:
    """The tasks of a job array, grouped by what has become of them.

    Each task is in ``pending`` (not a job yet), in ``cancelled`` (never became a job), or is a job.
    The sets of jobs are not stored: a restarted server fills them from the stored jobs.
    """

    #: Tasks that are not jobs yet.
    pending: TaskNumbers
    #: Tasks that were cancelled before they became jobs.
    cancelled: TaskNumbers = field(default_factory=TaskNumbers)
    #: Tasks that were jobs and have ended; those of them that failed or were cancelled.
    ended: int = 0
    failed: int = 0
    cancelled_jobs: int = 0
    #: The highest exit code and signal of a task.
    exit_code: int = 0
    signal: int = 0
    #: Jobs of tasks that have not ended.
    open: dict[JobId, None] = field(default_factory=dict, compare=False)
    #: Those that count for the limit of tasks that run at once: they run, or may start next.
    admitted: dict[JobId, None] = field(default_factory=dict, compare=False)
    #: Those that are admitted and wait in the queue.
    waiting: dict[JobId, None] = field(default_factory=dict, compare=False)
    #: Those that wait until fewer tasks run.
    behind: dict[JobId, None] = field(default_factory=dict, compare=False)

    @property
    def running(self) -> int:
        """Return how many tasks have processors or are suspended."""
        return len(self.admitted) - len(self.waiting)

    @property
    def all_started(self) -> bool:
        """Return whether each task has processors, is suspended or has ended."""
        return not self.pending and not self.waiting and len(self.admitted) == len(self.open)

    @property
    def done(self) -> bool:
        """Return whether all tasks have ended."""
        return not self.pending and not self.open

    def has_room(self, limit: int | None) -> bool:
        """Return whether one more task may run; a limit of None allows any number."""
        return limit is None or len(self.admitted) < limit

    def place(self, job: JobId, limit: int | None, *, is_pending: bool, is_held: bool) -> bool:
        """Record the state of an open task that has become a job; return whether it may run.

        Args:
            job: the job of the task.
            limit: the largest number of tasks that may run at once; None for any number.
            is_pending: whether the job waits in the queue.
            is_held: whether the job is held until a user releases it.
        """
        self.open[job] = None
        self.waiting.pop(job, None)
        self.behind.pop(job, None)
        if is_held:
            self.admitted.pop(job, None)
            return False
        if job not in self.admitted and is_pending and not self.has_room(limit):
            self.behind[job] = None
            return False
        self.admitted[job] = None
        if is_pending:
            self.waiting[job] = None
        return True

    def end(self, job: JobId, exit_code: int, signal: int) -> None:
        """Record that the job of a task has ended, with its exit code and signal (0 for none)."""
        for jobs in (self.open, self.admitted, self.waiting, self.behind):
            jobs.pop(job, None)
        self.ended += 1
        self.exit_code, self.signal = max(self.exit_code, exit_code), max(self.signal, signal)

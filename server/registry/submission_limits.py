"""The limits on submissions: whether a user may submit another job.

This module is the only place that checks these limits. The limit on a user's running processors is
checked by the core (``core/state/user_processor_limits.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.core.values.user_limits import NO_LIMITS, UserLimit, UserLimits
from pliant.server.support.rate_limit import TokenBucket

_NOT_STARTED = frozenset({JobState.PENDING.value, JobState.HELD.value})


class SubmissionLimits:
    """Checks whether a user may submit another job.

    The limits are on the number of the user's pending jobs, their size in bytes, and the number of
    submissions per second.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Replaced when the configuration is read again.
        self.limits: UserLimits = NO_LIMITS
        #: Bytes of the arguments and the environment of each job that has not ended.
        self._bytes: dict[JobId, int] = {}
        #: The owners of the jobs that have not started, and as how many jobs each counts.
        self._owners: dict[JobId, tuple[str, int]] = {}
        self._jobs: dict[str, int] = {}
        self._sums: dict[str, int] = {}
        self._buckets: dict[str, TokenBucket] = {}

    def restore(self, sizes: Mapping[JobId, int]) -> None:
        """Set the sizes of the jobs that are open when the server starts.

        A job's size is that of its arguments and environment in bytes.
        """
        with self._lock:
            self._bytes.update(sizes)

    def admit(self, user: str, size: int, now: float, *, exempt: bool, jobs: int = 1) -> str:
        """Return why a user may not submit another job now; empty if the user may.

        Args:
            user: the user who submits the job.
            size: bytes of its arguments and environment.
            now: seconds on a monotonic clock.
            exempt: if True, only the limits that the configuration sets for this user by name
                apply, and not those for all users.
            jobs: the number of jobs to count: 1, or the number of tasks of an array.
        """
        limits = self.limits
        limit = limits.users.get(user, UserLimit()) if exempt else limits.of(user)
        with self._lock:
            before, total = self._jobs.get(user, 0), self._sums.get(user, 0) + size
            if limit.pending_jobs is not None and before + jobs > limit.pending_jobs:
                more = f" and submits {jobs} tasks" if jobs > 1 else ""
                return (
                    f"{user} has {before} jobs that have not started{more}, and the limit is "
                    f"{limit.pending_jobs} (user_limits.pending_jobs): wait until some have "
                    "started, or cancel some with jobdel"
                )
            if limit.pending_bytes is not None and total > limit.pending_bytes:
                return (
                    f"the arguments and environments of {user}'s jobs that have not started would "
                    f"have {total} bytes, and the limit is {limit.pending_bytes} "
                    "(user_limits.pending_bytes): wait until some have started, or export fewer "
                    "variables with jobsub --export"
                )
            rate = limit.submissions_per_s
            if rate is not None:
                bucket = self._buckets.setdefault(user, TokenBucket(limit.burst, now))
                if not bucket.take(rate, limit.burst, now):
                    wait_s = (1.0 - bucket.tokens) / rate
                    return (
                        f"{user} may submit {rate:g} jobs per second, {limit.burst:g} at once "
                        f"(user_limits.submissions_per_s): submit again in {wait_s:.1f} s"
                    )
        return ""

    def add(self, job: JobId, user: str, size: int, jobs: int = 1) -> None:
        """Count a new job, before it is stored; an array counts as ``jobs`` jobs."""
        with self._lock:
            self._bytes[job] = size
            self._count(job, user, jobs)

    def update(self, job: JobId, user: str, state: str, jobs: int = 1) -> None:
        """Count a job while it has not started; stop counting it afterwards.

        Args:
            job: the number of the job.
            user: the owner of the job.
            state: the present state of the job, which shows whether it has started.
            jobs: how many jobs it counts as: 1, or the tasks of an array that are not jobs yet.
        """
        with self._lock:
            if state in _NOT_STARTED:
                self._count(job, user, jobs)
            else:
                self._drop(job)

    def forget(self, job: JobId) -> None:
        """Stop counting a job that has ended or was never stored."""
        with self._lock:
            self._drop(job)
            self._bytes.pop(job, None)

    def _count(self, job: JobId, user: str, jobs: int) -> None:
        _, before = self._owners.get(job, (user, 0))
        if not before:
            self._sums[user] = self._sums.get(user, 0) + self._bytes.get(job, 0)
        self._owners[job] = user, jobs
        self._jobs[user] = self._jobs.get(user, 0) + jobs - before

    def _drop(self, job: JobId) -> None:
        user, jobs = self._owners.pop(job, ("", 0))
        if not jobs:
            return
        self._jobs[user] -= jobs
        self._sums[user] -= self._bytes.get(job, 0)
        if not self._jobs[user]:
            del self._jobs[user], self._sums[user]

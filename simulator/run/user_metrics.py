"""Metrics of each user: processor-seconds, jobs and waiting times.

When all jobs have ended, every user has used what the jobs needed, under any order of the queue.
The order has an effect only while users compete. So the share of each user is measured at the time
of the last submission, when an overloaded machine still has jobs of all of them.
"""

from collections.abc import Iterable

from pliant.simulator.inputs.workload import SimJob
from pliant.simulator.run.job_run import Run
from pliant.simulator.run.result import JobRecord

#: The metrics of a user with their descriptions; the user's name follows in parentheses.
USER_DESCRIPTIONS = {
    "user_part": "part of all processor-seconds used until the last submission",
    "user_processor_s": "processor-seconds used until the last submission",
    "user_jobs": "jobs that ran",
    "user_mean_wait_s": "submission to start",
}


class UserMetrics:
    """Sums for each user, and the metrics computed from them."""

    def __init__(self) -> None:
        self._jobs: dict[str, int] = {}
        self._wait: dict[str, float] = {}
        #: Processor-seconds of ended jobs, and of all jobs at the last submission.
        self._area: dict[str, float] = {}
        self._at_last: dict[str, float] = {}

    def ended(self, job: SimJob, record: JobRecord) -> None:
        """Add the record of a job that has ended."""
        if record.start is not None:
            user = job.user
            self._jobs[user] = self._jobs.get(user, 0) + 1
            self._wait[user] = self._wait.get(user, 0.0) + record.wait
            self._area[user] = self._area.get(user, 0.0) + record.area

    def last_submitted(self, runs: Iterable[Run], now: float) -> None:
        """Record each user's usage until ``now``, the time of the last submission.

        The usage of running jobs is included.
        """
        found = dict(self._area)
        for run in runs:
            found[run.job.user] = found.get(run.job.user, 0.0) + run.area_until(now)
        self._at_last = found

    def summary(self) -> dict[str, float]:
        """Return the metrics of all users, sorted by name."""
        total = sum(self._at_last.values())
        values: dict[str, float] = {}
        for user in sorted(self._jobs):
            used, jobs = self._at_last.get(user, 0.0), self._jobs[user]
            mine = (used / total if total else 0.0, used, jobs, self._wait[user] / jobs)
            values |= {
                f"{name}({user or '-'})": value
                for name, value in zip(USER_DESCRIPTIONS, mine, strict=True)
            }
        return values

"""The progress of a running job: Ghafoor's phase equations (3.5-3.16) for any speedup model.

A phase has a constant size p and does S(p) seconds of one processor's work per second. The work
that is left after a phase is ``Wr_i = Wr_(i-1) - S(p_i) t_i`` (3.12; in the paper, S(p) is p). The
time that is left at the next size is ``Wr_i / S(p_(i+1))`` (3.13). A change from p1 to p2
processors stops the job for ``C x |p1 - p2|`` on its new allocation (3.16). Malleable jobs compute
while they negotiate (3.3.1).
"""

import math

from pliant.core.values.speedup import Speedup
from pliant.simulator.inputs.costs import adaptation_pause
from pliant.simulator.inputs.workload import SimJob


class Run:
    """One run of a job, from a start on processors to its end. Times are in simulated seconds."""

    __slots__ = (
        "_paused",
        "_since",
        "_size_since",
        "_speedup",
        "area",
        "cost",
        "end",
        "ended",
        "first_size",
        "first_start",
        "job",
        "joining",
        "number",
        "ranks",
        "resizes",
        "saved",
        "saving",
        "stalled",
        "start",
        "suspended_s",
        "suspensions",
        "version",
        "work_left",
    )

    def __init__(
        self, job: SimJob, number: int, ranks: tuple[int, ...], now: float, cost: float
    ) -> None:
        self.job = job
        self._speedup: Speedup = job.speedup
        #: The number of the run, which the core counts.
        self.number = number
        #: The allocation in rank order.
        self.ranks = ranks
        #: Processors of new processes that have not joined yet.
        self.joining: tuple[int, ...] = ()
        #: The start of this run; the first run of the job began at ``first_start``.
        self.start = self.first_start = now
        self.first_size = len(ranks)
        #: The seconds that each changed processor costs in a resize.
        self.cost = cost
        #: Work that was left when it last changed size, in seconds on one processor.
        self.work_left = job.work
        #: Processor-seconds held until it last changed size.
        self.area = 0.0
        self.resizes = 0
        #: Raised whenever ``end`` changes. Scheduled events of an older version have no effect.
        self.version = 0
        #: The work that the job would have done in its pauses until it last changed size.
        self._paused = 0.0
        self._since = self._size_since = now
        #: Whether it stands still because it has too few processors.
        self.stalled = False
        #: Whether it stands still to write a checkpoint and leave.
        self.saving = False
        #: The last checkpoint: the work that was left, and ``_paused`` at that time.
        self.saved = (job.work, 0.0)
        #: How often the job was suspended before this run, and for how many seconds in total.
        self.suspensions = 0
        self.suspended_s = 0.0
        #: When its work is done, if nothing changes.
        self.end = now + self.work_left / self._speedup(len(ranks))
        #: Whether its processes have exited.
        self.ended = False

    def resize(self, ranks: tuple[int, ...], now: float) -> None:
        """Change the allocation; the job pauses for the cost of the change, then continues."""
        pause = adaptation_pause(self.cost, len(self.ranks), len(ranks))
        self._account(now)
        # A change during the pause of an earlier change adds its pause to the end of that one.
        self._since = max(self._since, now) + pause
        self.ranks = ranks
        self.resizes += 1
        self._project(now)

    def save(self, now: float) -> None:
        """Stop at a safe point and write a checkpoint; the run does not continue after that."""
        self._account(now)
        self.saved = (self.work_left, self._paused)
        self.saving = True
        self._project(now)

    def resume_from(self, earlier: "Run", restart_s: float) -> None:
        """Continue an earlier run of the job from its last checkpoint.

        Args:
            earlier: the previous run, which has ended.
            restart_s: seconds for reading the checkpoint before the job computes again.
        """
        self.first_start, self.first_size = earlier.first_start, earlier.first_size
        self.area, self.resizes = earlier.area, earlier.resizes
        self.saved = earlier.saved
        self.work_left, self._paused = earlier.saved
        self.suspensions = earlier.suspensions + earlier.saving
        self.suspended_s = earlier.suspended_s + (self.start - earlier.end) * earlier.saving
        self._since = self.start + restart_s
        self._project(self.start)

    def time_of(self, work: float) -> float:
        """Return when ``work`` seconds of one processor's work will be done at the present size."""
        return self._since + work / self._speedup(len(self.ranks))

    def _project(self, now: float) -> None:
        """Compute the end of the run again after a change."""
        self.version += 1
        if self.stalled or self.saving:
            self.end = math.inf
        else:
            self._since = max(self._since, now)
            self.end = self.time_of(self.work_left)

    def finish(self, now: float) -> None:
        """Record that the run ends now.

        If the expected end has been reached, the remaining work is 0.
        """
        if not self.ended:
            self._account(now)
            if now >= self.end:
                self.work_left = 0.0
            self.end = now
            self.ended = True
            self.version += 1

    def estimate_grace(self, now: float) -> float:
        """Return how many seconds later the job uses up its estimate than the core expects.

        The core does not know for how long a resize stops the job, and counts that time as
        computation.
        """
        speed = self._speedup(len(self.ranks))
        if self.stalled:
            self._account(now)
        return self._paused / speed + max(0.0, self._since - now)

    def area_until(self, now: float) -> float:
        """Return the processor-seconds for which the run has held processors until now."""
        return self.area + (0.0 if self.ended else len(self.ranks) * (now - self._size_since))

    @property
    def work_done(self) -> float:
        """Return the work done, in processor-seconds, up to the last change of size or the end.

        Work that was done after the last change of size does not count while the job runs.
        """
        return self.job.work - self.work_left

    def _account(self, now: float) -> None:
        size = len(self.ranks)
        elapsed = now - self._size_since
        self.area += size * elapsed
        computed = 0.0
        if now > self._since:
            computed = 0.0 if self.stalled or self.saving else now - self._since
            self.work_left = max(0.0, self.work_left - computed * self._speedup(size))
            self._since = now
        self._paused += (elapsed - computed) * self._speedup(size)
        self._size_since = now


def next_safe_point(start: float, now: float, interval: float) -> float:
    """Return the time of the first safe point at or after ``now``.

    Args:
        start: the time of the first safe point.
        now: the present time.
        interval: the time between two safe points; 0 if the program is at a safe point all the
            time.
    """
    if interval <= 0:
        return now
    passed = (now - start) // interval
    point = start + passed * interval
    return point if point >= now else start + (passed + 1) * interval

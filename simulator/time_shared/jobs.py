"""Jobs of one process, and the times that each of them computes, pages, waits and migrates."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.core.values.ids import JobId

#: The largest difference between a job's life and the sum of its four times, in seconds.
MAX_ERROR_S = 1e-6
#: Processor time, in seconds, that rounding may leave of a job that has ended.
TINY_S = 1e-9


@dataclass(frozen=True, slots=True)
class SharedJob:
    """A job of one process, as it is submitted."""

    id: int
    #: Seconds since the beginning of the simulation.
    submit: float
    #: Its processor time on a node of speed 1, in seconds.
    cpu_s: float
    #: The largest memory demand, in bytes.
    demand: float
    #: The number of the node that it is submitted on.
    home: int
    program: str = ""


class JobRun:
    """A job in the simulation, with the times that it has computed, paged, waited and migrated.

    The four times are measured independently of each other.

    Args:
        job: the job.
        ramp: the fraction of its processor time in which its demand for memory grows from 0.
    """

    __slots__ = (
        *("arrives", "cpu", "demand", "end", "full_at", "growth", "id", "job", "left", "migration"),
        *("node", "page", "processor", "queue", "ramp_s", "started", "stopped_at"),
    )

    def __init__(self, job: SharedJob, ramp: float) -> None:
        self.job = job
        self.id = JobId(job.id)
        self.ramp_s = ramp * job.cpu_s
        #: The processor time that is left, on a node of speed 1.
        self.left = job.cpu_s
        #: The demand is the largest one when this much is left.
        self.full_at = job.cpu_s - self.ramp_s
        #: Bytes by which the demand grows with each second of processor time.
        self.growth = job.demand / self.ramp_s if self.ramp_s else 0.0
        #: Bytes that it demands at present.
        self.demand = 0.0 if self.ramp_s else job.demand
        #: Seconds of computing, of paging, of waiting, and of migrations and remote starts.
        self.cpu = self.page = self.queue = self.migration = 0.0
        #: The node and the processor that it is on, or is being moved to; -1 if it waits.
        self.node = self.processor = -1
        #: When a migration or a remote start ends; 0 if none is under way.
        self.arrives = 0.0
        self.started: float | None = None
        #: When it began to wait: at its submission, or when it was suspended.
        self.stopped_at = job.submit
        self.end: float | None = None

    def compute(self, work: float) -> None:
        """Subtract processor time from what the job still needs, and adapt its memory demand.

        Args:
            work: the processor time on a node of speed 1, in seconds.
        """
        left = self.left
        self.left = now_left = left - work
        if left <= self.full_at:
            return
        if now_left > self.full_at + TINY_S:
            self.demand = self.growth * (self.job.cpu_s - now_left)
        else:
            self.demand = self.job.demand

    @property
    def wall_s(self) -> float:
        """Return the seconds from the submission to the end."""
        assert self.end is not None
        return self.end - self.job.submit

    def check_account(self, speed: float) -> None:
        """Check that the times of computing, paging, waiting and migrating add up.

        Their sum must be the time from the job's submission to its end.

        Args:
            speed: the speed of the processors that it computed on.

        Raises:
            AssertionError: they do not add up, which is an error of the simulator.
        """
        times = (self.cpu, self.page, self.queue, self.migration)
        error = self.wall_s - sum(times)
        if abs(error) > MAX_ERROR_S or min(times) < -MAX_ERROR_S:
            raise AssertionError(
                f"job {self.job.id}: its times are {times}, and the sum lacks {error:g} s"
            )
        if abs(self.cpu * speed - self.job.cpu_s) > MAX_ERROR_S:
            raise AssertionError(
                f"job {self.job.id} computed {self.cpu * speed:g} s instead of {self.job.cpu_s:g} s"
            )

"""A time-shared node: its jobs compute, page and arrive, exactly to the instant of each end."""

from __future__ import annotations

from collections import deque

from pliant.core.model.nodes import JobMemory, NodeLoad
from pliant.simulator.time_shared.jobs import JobRun
from pliant.simulator.time_shared.progress import paging_times, progress
from pliant.simulator.time_shared.settings import TimeSharedSettings

#: Demands that change are taken to be constant for so many seconds.
MAX_STEP_S = 1.0
#: Processor time, in seconds, that rounding may leave of a job that has ended.
_DONE_S = 1e-9


class SharedNode:
    """A node with one processor, a paging disk, and the jobs on it.

    Args:
        memory: the bytes that jobs may use.
        settings: the settings of the simulation.
    """

    def __init__(self, memory: float, settings: TimeSharedSettings) -> None:
        self.memory = memory
        self.now = 0.0
        #: The sum of the present demands, including jobs that are being moved to the node.
        self.demand = 0.0
        #: Major faults until now.
        self.faults = 0.0
        self.computing: list[JobRun] = []
        #: Jobs that are being moved to the node. They hold their memory and their slot already.
        self.arriving: list[JobRun] = []
        #: Jobs that have ended since the last call of ``take_ended``.
        self._ended: list[JobRun] = []
        self._settings = settings
        self._idle_load = NodeLoad(memory, 0.0)
        self._efficiency = settings.efficiency
        #: The number of faults at earlier reports, with their times.
        self._reports: deque[tuple[float, float]] = deque([(0.0, 0.0)])

    # ---------------------------------------------------------------- jobs

    def add(self, run: JobRun, arrives: float) -> None:
        """Accept a job that begins to compute at a time; until then it is being moved."""
        if arrives > self.now:
            run.arrives = arrives
            self.arriving.append(run)
        else:
            run.arrives = 0.0
            self.computing.append(run)
        self.demand += run.demand

    def remove(self, run: JobRun) -> None:
        """Give up a job that computes here."""
        self.computing.remove(run)
        self._sum_demands()

    def take_ended(self) -> list[JobRun]:
        """Return the jobs that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    # ---------------------------------------------------------------- time

    def advance(self, until: float) -> None:
        """Let the jobs compute, page and arrive until a time."""
        while self.now < until and (self.computing or self.arriving):
            end = until
            for run in self.arriving:
                end = min(end, run.arrives)
            if self.computing:
                end = self._compute(min(end, self.now + MAX_STEP_S))
            step = end - self.now
            for run in self.arriving:
                run.migration += step
            self.now = end
            if self.arriving:
                self._begin_arrived()
        self.now = until

    def _begin_arrived(self) -> None:
        for run in [each for each in self.arriving if each.arrives <= self.now]:
            self.arriving.remove(run)
            run.arrives = 0.0
            self.computing.append(run)

    def _compute(self, until: float) -> float:
        """Let the jobs compute, and return the time: the end of the first job, or ``until``."""
        runs = self.computing
        if self.demand <= self.memory:
            return self._compute_alike(runs, until)
        settings, speed = self._settings, self._settings.speed
        paging = paging_times(
            [run.demand for run in runs],
            self.demand,
            self.memory,
            settings.faults * speed,
            settings.fault_service_s,
        )
        rates = progress(paging, self._efficiency, overlap=settings.overlap)
        step = until - self.now
        for run, rate in zip(runs, rates, strict=True):
            if run.left <= rate * speed * step:
                step = run.left / (rate * speed)
        is_growing, paged = False, 0.0
        for run, rate, each in zip(runs, rates, paging, strict=True):
            cpu = rate * step
            page = each * cpu
            paged += page
            run.cpu += cpu
            run.page += page
            run.queue += step - cpu - page
            is_growing |= run.compute(cpu * speed)
        self.faults += paged / settings.fault_service_s
        return self._computed(step, until, is_growing=is_growing)

    def _compute_alike(self, runs: list[JobRun], until: float) -> float:
        """Let jobs compute that all progress at the same rate, because none of them pages."""
        step, rate = until - self.now, self._efficiency / len(runs)
        speed = self._settings.speed
        least = min([run.left for run in runs])
        if least <= rate * speed * step:
            step = least / (rate * speed)
        cpu = rate * step
        queue, work = step - cpu, cpu * speed
        is_growing = False
        for run in runs:
            run.cpu += cpu
            run.queue += queue
            if run.compute(work):
                is_growing = True
        return self._computed(step, until, is_growing=is_growing)

    def _computed(self, step: float, until: float, *, is_growing: bool) -> float:
        """Take the jobs that have ended from the node, and return the time."""
        # Only a job that has ended, or ends with this step, shortens the step.
        is_short = self.now + step < until
        end = self.now + step if is_short else until
        ended = [run for run in self.computing if run.left <= _DONE_S]
        for run in ended:
            run.end = end
            self.computing.remove(run)
            self._ended.append(run)
        if ended or is_growing:
            self._sum_demands()
        return end

    def _sum_demands(self) -> None:
        self.demand = sum([run.demand for run in self.computing])
        if self.arriving:
            self.demand += sum([run.demand for run in self.arriving])

    # ---------------------------------------------------------------- reports

    def report(self) -> NodeLoad:
        """Return the load at this time."""
        if not (self.computing or self.arriving or self._reports[0][1] < self.faults):
            return self._idle_load
        reports, window = self._reports, self._settings.window_s
        reports.append((self.now, self.faults))
        while len(reports) > 1 and reports[1][0] <= self.now - window:
            reports.popleft()
        rate = (self.faults - reports[0][1]) / window
        faulting: tuple[JobMemory, ...] = ()
        if self.demand > self.memory:
            faulting = tuple(
                [JobMemory(run.id, run.demand) for run in self.computing if run.demand]
            )
        return NodeLoad(self.memory, self.demand, rate, faulting)

    def restart_window(self) -> None:
        """Begin to count faults again, because a job has left that caused most of them."""
        self._reports.clear()
        self._reports.append((self.now, self.faults))

"""A time-shared node, on which jobs arrive, compute, page and end, each at its exact time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pliant.core.model.nodes import JobMemory, NodeLoad
from pliant.simulator.time_shared.jobs import TINY_S, JobRun
from pliant.simulator.time_shared.progress import paging_times, progress
from pliant.simulator.time_shared.settings import TimeSharedSettings

#: Demands that grow while jobs page are taken to be constant for so many seconds.
MAX_STEP_S = 1.0
_FOREVER = float("inf")


class SharedNode:
    """A node with one processor, a paging disk, and the jobs on it.

    The progress of its jobs is calculated in phases in which all rates are constant. A phase ends
    when a job ends or arrives, when the demand of a job stops growing, or when the memory is used
    up. While jobs page and their demands grow, the rates change all the time, so that phases last
    at most ``MAX_STEP_S``.

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
        self._settings = settings
        self._idle_load = NodeLoad(memory, 0.0)
        self._efficiency = settings.efficiency
        #: The number of faults at earlier reports, with their times.
        self._reports: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        #: The jobs that fault in the present phase; None if not looked up yet.
        self._faulting: tuple[JobMemory, ...] | None = None
        #: The present phase: its beginning and its end, with the rates of the computing jobs, what
        #: they page per second of processor time, and how fast demand and faults grow.
        self._since, self._until = 0.0, _FOREVER
        self._rates: list[float] = []
        self._paging: list[float] = []
        self._demand_rate = self._fault_rate = 0.0
        #: Demand and faults at the beginning of the phase.
        self._demand_before = self._faults_before = 0.0

    # ---------------------------------------------------------------- jobs

    def add(self, run: JobRun, arrives: float) -> None:
        """Accept a job, which is moved here until time ``arrives`` and then begins to compute."""
        self._settle()
        if arrives > self.now:
            run.arrives = arrives
            self.arriving.append(run)
        else:
            run.arrives = 0.0
            self.computing.append(run)
        self._begin_phase()

    def remove(self, run: JobRun) -> None:
        """Remove a job that computes on this node."""
        self._settle()
        self.computing.remove(run)
        self._begin_phase()

    # ---------------------------------------------------------------- time

    def advance(self, until: float) -> Sequence[JobRun]:
        """Let the jobs compute, page and arrive until ``until``; return those that have ended."""
        ended: Sequence[JobRun] = ()
        while self._until <= until:
            self.now = self._until
            self._settle()
            ended = [*ended, *self._end_jobs()]
            if self.arriving:
                self._begin_arrived()
            self._begin_phase()
        self.now = until
        elapsed = until - self._since
        self.demand = self._demand_before + self._demand_rate * elapsed
        self.faults = self._faults_before + self._fault_rate * elapsed
        return ended

    def _settle(self) -> None:
        """Add to each job what it has computed, paged and waited since its rates last changed."""
        step = self.now - self._since
        if step <= 0:
            return
        self._since = self.now
        speed = self._settings.speed
        for run, rate, paging in zip(self.computing, self._rates, self._paging, strict=True):
            cpu = rate * step
            page = paging * cpu
            run.cpu += cpu
            run.page += page
            run.queue += step - cpu - page
            run.compute(cpu * speed)
        for run in self.arriving:
            run.migration += step
        self._faults_before += self._fault_rate * step
        self.faults = self._faults_before

    def _end_jobs(self) -> list[JobRun]:
        ended = [each for each in self.computing if each.left <= TINY_S]
        for run in ended:
            run.end = self.now
            self.computing.remove(run)
        return ended

    def _begin_arrived(self) -> None:
        for run in [each for each in self.arriving if each.arrives <= self.now]:
            self.arriving.remove(run)
            run.arrives = 0.0
            self.computing.append(run)

    def _begin_phase(self) -> None:
        """Begin a phase, a period in which all rates are constant.

        Compute the rates of the jobs now, and the time until which they stay the same.
        """
        self._since, self._faults_before = self.now, self.faults
        demands = [run.demand for run in self.computing]
        demand, self._until = sum(demands), _FOREVER
        if self.arriving:
            demand += sum([run.demand for run in self.arriving])
            self._until = min([run.arrives for run in self.arriving])
        self.demand = self._demand_before = demand
        self._demand_rate = self._fault_rate = 0.0
        self._faulting = None
        self._rates, self._paging = [], []
        if demands:
            self._set_rates(self.computing, demands)

    def _set_rates(self, runs: list[JobRun], demands: list[float]) -> None:
        settings = self._settings
        if self.demand <= self.memory:
            rates, paging = [self._efficiency / len(runs)] * len(runs), [0.0] * len(runs)
        else:
            paging = paging_times(
                demands,
                self.demand,
                self.memory,
                settings.faults * settings.speed,
                settings.fault_service_s,
            )
            rates = progress(paging, self._efficiency, overlap=settings.overlap)
            paged = sum([rate * each for rate, each in zip(rates, paging, strict=True)])
            self._fault_rate = paged / settings.fault_service_s
        self._rates, self._paging = rates, paging
        growth, length, speed = 0.0, _FOREVER, settings.speed
        for run, rate in zip(runs, rates, strict=True):
            work, left, full_at = rate * speed, run.left, run.full_at
            if left > full_at + TINY_S:  # its demand grows
                growth += work * run.growth
                left -= full_at
            left /= work
            length = min(length, left)
        if growth:
            idle_s = (self.memory - self.demand) / growth
            if idle_s > MAX_STEP_S:
                self._demand_rate = growth
                length = min(length, idle_s)
            else:
                length = min(length, MAX_STEP_S)
        self._until = min(self._until, self.now + length)

    # ---------------------------------------------------------------- reports

    def report(self) -> NodeLoad:
        """Return the load at this time."""
        reports, window = self._reports, self._settings.window_s
        if not (self.computing or self.arriving or reports[0][1] < self.faults):
            return self._idle_load
        reports.append((self.now, self.faults))
        begin = self.now - window
        while len(reports) > 1 and reports[1][0] <= begin:
            reports.popleft()
        rate = (self.faults - reports[0][1]) / window
        if self._faulting is None:
            self._faulting = ()
            if self._fault_rate:
                self._faulting = tuple(
                    [JobMemory(run.id, run.demand) for run in self.computing if run.demand]
                )
        return NodeLoad(self.memory, self.demand, rate, self._faulting)

    def restart_window(self) -> None:
        """Restart the count of page faults, because the job that caused most of them has left."""
        self._reports.clear()
        self._reports.append((self.now, self.faults))

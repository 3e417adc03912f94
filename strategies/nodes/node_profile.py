"""When processors on nodes that fit a job become free, by estimates.

In contrast to ``policies.free_processors_profile``, which counts, this profile knows the processors
and what is left on their nodes. A reservation is for certain processors.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

from pliant.core.model.free_capacity import FreeCapacity
from pliant.core.model.views_and_plans import RunningJob, View, WaitingJob
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, count, lowest


@dataclass(frozen=True, slots=True)
class _Reservation:
    processors: ProcessorMap
    needs: NodeNeeds | None
    start: float
    end: float


class NodeProfile:
    """The processors that are free at each time, as the jobs' estimates predict.

    It starts without reservations; `reserve` adds them for jobs that start later. All reservations
    that overlap a period count as if they were simultaneous. So a start may be planned later than
    necessary, but never on processors that another job has.

    Args:
        view: the cluster.
        more: jobs that start now, with their processors and planned ends.
    """

    def __init__(
        self, view: View, more: Sequence[tuple[WaitingJob, ProcessorMap, float]] = ()
    ) -> None:
        self._now = view.now
        self._usable = NONE
        for node in view.nodes:
            self._usable |= node.processors
        releases = [(_end(job, view.now), job.id, job.held, job.needs) for job in view.running]
        free, capacity = view.free, free_capacity_of(view)
        for job, processors, end in more:
            free &= ~processors
            capacity.take(job.needs, processors)
            releases.append((end, job.id, processors, job.needs))
        releases.sort(key=lambda each: each[:2])
        self._releases = [each for each in releases if each[0] < math.inf]
        #: (time from which, free processors, capacity), as far as they have been needed.
        self._steps: list[tuple[float, ProcessorMap, FreeCapacity]] = [(view.now, free, capacity)]
        self._reservations: list[_Reservation] = []

    def step(self, place: int) -> tuple[float, ProcessorMap, FreeCapacity] | None:
        """Return step number ``place`` in order of time; None if there are no more steps.

        A step holds its time, the free processors, and the free memory and devices of the nodes.
        From one step to the next, processors only become free.
        """
        while place >= len(self._steps):
            done = len(self._steps) - 1
            if done >= len(self._releases):
                return None
            end, _, held, needs = self._releases[done]
            _, free, capacity = self._steps[-1]
            capacity = capacity.copy()
            capacity.give(needs, held)
            self._steps.append((end, free | held & self._usable, capacity))
        return self._steps[place]

    def fitting(
        self, needs: NodeNeeds | None, start: float, end: float, enough: int = 0
    ) -> ProcessorMap:
        """Return the processors that a job can have from ``start`` to ``end``.

        Args:
            needs: the needs of the job.
            start: the beginning of the period.
            end: the end of the period.
            enough: how many processors the job needs. If fewer are free, the search may stop early,
                and the result may be empty.
        """
        free, capacity = self._at(start)
        overlapping = [each for each in self._reservations if each.start < end and start < each.end]
        for each in overlapping:
            free &= ~each.processors
        free &= capacity.accepted(needs)
        # In a busy cluster, counting excludes nearly all times. Memory and devices take longer.
        if count(free) < enough:
            return NONE
        if overlapping and needs is not None and needs.amounts:
            nodes = capacity.whole_nodes(free)
            capacity = capacity.copy()
            for each in overlapping:
                capacity.take(each.needs, each.processors & nodes)
        return capacity.fitting(needs, free)

    def earliest(
        self, job: WaitingJob, size: int, seconds: float, after: float = -math.inf
    ) -> tuple[float, ProcessorMap]:
        """Return the first time at which a job can start on ``size`` processors, and on which.

        Processors that are not free now are taken first, so that other jobs can start now on those
        that are free. The time is inf if it is not known.
        """
        if not self._reservations and after <= self._now:
            return self._first_step(job.needs, size)
        for start in self._times(after):
            fit = self.fitting(job.needs, start, start + seconds, size)
            if count(fit) >= size:
                now = self._steps[0][1]
                return start, _lowest_of(fit & ~now, fit & now, size)
        return math.inf, NONE

    def _first_step(self, needs: NodeNeeds | None, size: int) -> tuple[float, ProcessorMap]:
        """Return the first time at which ``size`` suitable processors are free, and which.

        Called by `earliest` while there are no reservations. The time is inf if it is not known.
        """
        _, free, capacity = self._steps[0]
        numbers = {
            node.name: capacity.number_on(needs, node, free) for node, _ in capacity.parts(free)
        }
        reach, place = sum(numbers.values()), 0
        while reach < size:
            place += 1
            step = self.step(place)
            if step is None:
                return math.inf, NONE
            _, free, capacity = step
            for node, _ in capacity.parts(self._releases[place - 1][2]):
                before = numbers.get(node.name, 0)
                numbers[node.name] = capacity.number_on(needs, node, free)
                reach += numbers[node.name] - before
        start, free, capacity = self._steps[place]
        fit, now = capacity.fitting(needs, free), self._steps[0][1]
        return start, _lowest_of(fit & ~now, fit & now, size)

    def at(self, time: float) -> tuple[ProcessorMap, FreeCapacity]:
        """Return the free processors, memory and devices at a time, ignoring all reservations."""
        free, capacity = self._at(time)
        return free, capacity.copy()

    def reserve(
        self, needs: NodeNeeds | None, processors: ProcessorMap, start: float, end: float
    ) -> None:
        """Subtract processors, and a job's needs on them, from ``start`` until ``end``."""
        self._reservations.append(_Reservation(processors, needs, start, end))

    def _times(self, after: float) -> Iterator[float]:
        """Yield, in order, the times at which processors, memory or devices can become free."""
        ends = sorted(each.end for each in self._reservations if each.end < math.inf)
        last = -math.inf
        for time in merge(self._step_times(), ends):
            start = max(time, after)
            if start > last and start >= self._now:
                yield start
                last = start

    def _step_times(self) -> Iterator[float]:
        place = 0
        while (step := self.step(place)) is not None:
            yield step[0]
            place += 1

    def _at(self, time: float) -> tuple[ProcessorMap, FreeCapacity]:
        while self._steps[-1][0] <= time and self.step(len(self._steps)) is not None:
            pass
        _, free, capacity = self._steps[
            bisect_right(self._steps, time, key=lambda step: step[0]) - 1
        ]
        return free, capacity


def free_capacity_of(view: View) -> FreeCapacity:
    """Return the unused capacity of a view's nodes, as an object that a plan may change."""
    return FreeCapacity(view.nodes, view.amounts_left or {})


def _lowest_of(first: ProcessorMap, then: ProcessorMap, number: int) -> ProcessorMap:
    """Return ``number`` processors: the lowest of ``first``, then the lowest of ``then``."""
    chosen = lowest(first, min(number, count(first)))
    return chosen | lowest(then, number - count(chosen))


def _end(job: RunningJob, now: float) -> float:
    """Return when a job frees its processors, by its estimate; inf if it has none.

    The result is after the present, because nothing can start on processors that are not free now.
    A leaving job gets an earlier result than a job that has passed its estimate and may continue to
    run.
    """
    soon = math.nextafter(now, math.inf)
    if job.leaving:
        return soon
    end = job.expected_end
    return math.inf if end is None else max(end, math.nextafter(soon, math.inf))

"""Every order with every backfilling against a scheduler that counts second by second."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corekit.replay import Job, Replay
from pliant.core.values.sizes import Sizes
from pliant.strategies.policies.backfill import WALKS, Backfill
from pliant.strategies.policies.queue_order import Dynp, QueueOrder
from pliant.strategies.queueing import Composed

#: Sizes that divide it, so that times on all of them are whole seconds.
WORK = 12
LOWER, UPPER, THRESHOLD = 15.0, 30.0, 3


@dataclass
class Runs:
    """A job that runs, as the slow scheduler sees it."""

    size: int
    end: int
    believed: int


class Seconds:
    """Looks at every second anew; knows neither events nor profiles."""

    def __init__(self, jobs: list[Job], processors: int, order: str, backfill: Backfill) -> None:
        self.jobs = sorted(jobs, key=lambda job: (job.submit, job.id))
        self.processors = processors
        self.order = order
        self.backfill = backfill
        self.policy: str = "fcfs" if order == "dynp" else order
        self.running: dict[int, Runs] = {}
        self.starts: dict[int, tuple[float, int]] = {}

    def run(self) -> dict[int, tuple[float, int]]:
        second = 0
        while len(self.starts) < len(self.jobs):
            before = len(self.running)
            self.running = {i: r for i, r in self.running.items() if r.end > second}
            ended = len(self.running) < before
            came = any(job.submit == second for job in self.jobs)
            queue = [j for j in self.jobs if j.submit <= second and j.id not in self.starts]
            if (ended or came) and self.order == "dynp" and len(queue) >= THRESHOLD:
                mean = sum(job.estimate for job in queue) / len(queue)
                self.policy = "sjf" if mean <= LOWER else "fcfs" if mean <= UPPER else "ljf"
            sign = {"fcfs": 0, "sjf": 1, "ljf": -1}[self.policy]
            queue.sort(key=lambda job: (sign * job.estimate, job.submit, job.id))
            if queue:
                getattr(self, self.backfill)(queue, second)
            second += 1
        return self.starts

    # The three kinds: each starts jobs of an ordered queue at one second.

    def none(self, queue: list[Job], now: int) -> int:
        """Return how many have started."""
        for place, job in enumerate(queue):
            size = max((n for n in job.sizes.values if n <= self.free(now)), default=0)
            if not size:
                return place
            self.start(job, size, now)
        return len(queue)

    def easy(self, queue: list[Job], now: int) -> None:
        rest = queue[self.none(queue, now) :]
        if not rest:
            return
        need = min(rest[0].sizes.values)
        shadow = next(t for t in range(now, 10**6) if self.free(t) >= need)
        extra = self.free(shadow) - need
        for job in rest[1:]:
            for size in reversed(job.sizes.values):
                in_time = now + took(job, size, job.estimate) <= shadow
                if size <= self.free(now) and (in_time or size <= extra):
                    extra -= 0 if in_time else size
                    self.start(job, size, now)
                    break

    def conservative(self, queue: list[Job], now: int) -> None:
        ends = [r.believed - now for r in self.running.values()]
        total = sum(took(job, min(job.sizes.values), job.estimate) for job in queue)
        horizon = max(ends, default=0) + total
        used = [
            sum(r.size for r in self.running.values() if r.believed > now + s)
            for s in range(horizon)
        ]

        def fits(size: int, begin: int, length: int) -> bool:
            return all(used[s] + size <= self.processors for s in range(begin, begin + length))

        for job in queue:
            small = min(job.sizes.values)
            at_once = ((size, 0) for size in reversed(job.sizes.values))
            tries = chain(at_once, ((small, begin) for begin in range(1, horizon)))
            size, begin = next((n, t) for n, t in tries if fits(n, t, took(job, n, job.estimate)))
            for s in range(begin, begin + took(job, size, job.estimate)):
                used[s] += size
            if begin == 0:
                self.start(job, size, now)

    def free(self, second: int) -> int:
        """Return what is free by the estimates."""
        return self.processors - sum(r.size for r in self.running.values() if r.believed > second)

    def start(self, job: Job, size: int, now: int) -> None:
        self.starts[job.id] = (float(now), size)
        end = now + took(job, size, min(job.run, job.estimate))
        self.running[job.id] = Runs(size, end, now + took(job, size, job.estimate))


def took(job: Job, size: int, seconds: float) -> int:
    """Return whole seconds on so many processors."""
    exact = seconds * job.requested / size
    assert exact == int(exact)
    return int(exact)


@st.composite
def workloads(draw: st.DrawFn, *, moldable: bool) -> list[Job]:
    jobs = []
    for number in range(1, draw(st.integers(1, 14)) + 1):
        submit = draw(st.integers(0, 40))
        if moldable and draw(st.booleans()):
            values = draw(st.sets(st.sampled_from([1, 2, 3, 4, 6]), min_size=1))
            sizes = Sizes(tuple(sorted(values)))
            work = WORK * draw(st.integers(1, 8))
            run = WORK * draw(st.integers(1, 8))
            requested = draw(st.sampled_from(sizes.values))
            estimate, real = work / requested, run / requested
        else:
            requested = draw(st.integers(1, 8))
            sizes = Sizes((requested,))
            estimate, real = draw(st.integers(1, 50)), draw(st.integers(1, 60))
        jobs.append(Job(number, submit, float(real), float(estimate), sizes, requested))
    return jobs


def make(order: str, backfill: Backfill) -> Composed:
    if order == "dynp":
        return Composed(Dynp(LOWER, UPPER, THRESHOLD), backfill)
    policies: dict[str, QueueOrder] = {"fcfs": "fcfs", "sjf": "sjf", "ljf": "ljf"}
    return Composed(policies[order], backfill)


@pytest.mark.parametrize("moldable", [False, True], ids=["rigid", "moldable"])
@pytest.mark.parametrize("backfill", WALKS)
@pytest.mark.parametrize("order", ["fcfs", "sjf", "ljf", "dynp"])
def test_the_same_starts_second_by_second(
    order: Literal["fcfs", "sjf", "ljf", "dynp"], backfill: Backfill, moldable: bool
) -> None:
    @settings(max_examples=40)
    @given(workloads(moldable=moldable))
    def same(jobs: list[Job]) -> None:
        replay = Replay(make(order, backfill), 8, make(order, backfill))
        replay.run(jobs)
        assert replay.starts == Seconds(jobs, 8, order, backfill).run()

    same()

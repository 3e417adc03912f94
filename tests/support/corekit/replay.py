"""A machine that does at once what a strategy wants: workloads in, starts out.

Everybody agrees to everything in no time. Every plan is checked, asked for twice, and the
strategy's memory goes through JSON, as in a restart after each pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from pliant.core.model.processor_choice import after_resize
from pliant.core.model.views_and_plans import NodeView, Offer, Plan, RunningJob, View, WaitingJob
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import block, count, from_indices
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup
from pliant.strategies import Strategy


@dataclass(frozen=True)
class Job:
    """A job of a workload; times in seconds, for ``requested`` processors."""

    id: int
    submit: float
    run: float
    estimate: float
    sizes: Sizes
    requested: int
    speedup: Speedup = LINEAR
    malleable: bool = False


@dataclass
class Replay:
    """One run of a strategy over a workload."""

    strategy: Strategy
    processors: int
    #: Another instance of the same strategy: it must say the same.
    twin: Strategy | None = None
    #: Passes at one instant: until nothing is to be done, or just one.
    settle: bool = True
    #: Whether to ask for each plan twice and to store memory in between: long workloads do not.
    strict: bool = True
    now: float = 0.0
    memory: object = None
    passes: int = 0
    #: Per job: when it started and on how many.
    starts: dict[int, tuple[float, int]] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    #: Every size a job had.
    history: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue: dict[int, Job] = {}
        self.active: dict[int, RunningJob] = {}
        self.left: dict[int, float] = {}
        self.free = block(0, self.processors)
        half = (self.processors + 1) // 2
        self.nodes = (
            NodeView(NodeName("a"), "default", block(0, half)),
            NodeView(NodeName("b"), "default", block(half, self.processors - half)),
        )

    def run(self, jobs: Iterable[Job], watch: Callable[[View, Plan], None] | None = None) -> None:
        """Play a workload to its end."""
        todo = sorted(jobs, key=lambda job: (job.submit, job.id), reverse=True)
        known = {job.id: job for job in todo}
        while todo or self.active:
            ends = {number: self._end(number) for number in self.active}
            times = [*ends.values(), *([todo[-1].submit] if todo else [])]
            self.now = min(times)
            for number in [number for number, end in ends.items() if end == self.now]:
                self.free |= self.active.pop(number).held
                self.ends[number] = self.now
            while todo and todo[-1].submit == self.now:
                job = todo.pop()
                self.queue[job.id] = job
            for _ in range(50):
                if not self._pass(known, watch) or not self.settle:
                    break
            else:
                raise AssertionError("the strategy never rests")
        assert not self.queue, f"never started: {sorted(self.queue)}"

    def _end(self, number: int) -> float:
        job = self.active[number]
        return job.since + self.left[number] / job.speedup(job.size)

    def view(self) -> View:
        """Return what the strategy sees."""
        queue = [
            WaitingJob(
                JobId(job.id),
                job.submit,
                job.sizes,
                job.estimate,
                requested=job.requested,
                speedup=job.speedup,
            )
            for job in self.queue.values()
        ]
        active = sorted(self.active.values(), key=lambda job: (job.started, job.id))
        return View(
            self.now,
            self.nodes,
            tuple(sorted(queue, key=lambda job: (job.arrival, job.id))),
            (),
            tuple(active),
            self.free,
            self.processors,
            json.loads(json.dumps(self.memory)) if self.strict else self.memory,
        )

    def _pass(self, known: dict[int, Job], watch: Callable[[View, Plan], None] | None) -> bool:
        view = self.view()
        plan = self.strategy.allocate_processors(view)
        self.passes += 1
        if self.strict:
            assert plan == self.strategy.allocate_processors(view)
            assert plan == (self.twin or self.strategy).allocate_processors(self.view())
        if watch:
            watch(view, plan)
        self.memory = plan.memory
        changed = {offer.job for offer in plan.shrinks}
        assert not changed & {offer.job for offer in plan.expands}
        for offer in plan.shrinks:
            self._resize(offer, grows=False)
        for start in plan.starts:
            self._start(known[start.job], start.processors)
        for offer in plan.expands:
            self._resize(offer, grows=True)
        assert set(plan.reasons) <= set(self.queue)
        assert plan.behind or set(plan.reasons) == set(self.queue), "all who wait are told why"
        return bool(plan.shrinks or plan.starts or plan.expands)

    def _start(self, job: Job, processors: int) -> None:
        del self.queue[job.id]
        size = count(processors)
        assert size in job.sizes
        assert not processors & ~self.free, "not free"
        self.free &= ~processors
        self.starts[job.id] = (self.now, size)
        self.history[job.id] = [size]
        self.left[job.id] = min(job.run, job.estimate) * job.speedup(job.requested)
        self.active[job.id] = RunningJob(
            JobId(job.id),
            job.submit,
            self.now,
            after_resize((), processors),
            processors,
            job.sizes if job.malleable else Sizes((size,)),
            job.malleable,
            job.estimate,
            requested=job.requested,
            speedup=job.speedup,
            since=self.now,
            malleable=job.malleable,
        )

    def _resize(self, offer: Offer, *, grows: bool) -> None:
        job = self.active[offer.job]
        assert job.resizable
        assert count(offer.processors) in job.sizes
        old = from_indices(job.ranks)
        gone, new = old & ~offer.processors, offer.processors & ~old
        assert (bool(new), bool(gone)) == (grows, not grows)
        assert not new & ~self.free
        self.free = self.free & ~new | gone
        work = (self.now - job.since) * job.speedup(job.size)
        self.left[offer.job] -= work
        self.active[offer.job] = replace(
            job,
            ranks=after_resize(job.ranks, offer.processors),
            held=offer.processors,
            done=job.done + work,
            since=self.now,
        )
        self.history[offer.job].append(count(offer.processors))

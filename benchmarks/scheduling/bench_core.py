"""Cost of the core alone: microseconds of processor time by event, no strategy, no I/O.

The core is the state machine of the server, which handles events and emits commands. Budgets: all
events of a rigid job together <= 60 us, so that a simulation can reach 6,000 jobs/s, in which
strategy and simulator also take time; the core's part of a scheduling pass with 1000 waiting jobs,
200 running ones and 100k processors is small compared with the 50 ms of the whole pass.

``python benchmarks/scheduling/bench_core.py [JOBS]``; with ``--profile``, the rigid jobs run under
cProfile.
"""

from __future__ import annotations

import cProfile
import heapq
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from pliant.core import Core, Timeouts, commands, events
from pliant.core.model.jobs import Exit, JobSpec, JobType
from pliant.core.model.negotiation import Verb
from pliant.core.model.processor_choice import first_fit, keep_first
from pliant.core.model.resize import Preparing
from pliant.core.model.views_and_plans import Offer, Plan, Start, View
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.processors import count, from_indices, indices
from pliant.core.values.sizes import Sizes

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchkit import verdict

REPEATS = 5
JOBS, PROCESSORS = 2_000, 128
RESIZES = 800
WAITING, RUNNING, MANY = 1000, 200, 100_000
#: As a simulator drives it: nothing is waited for.
LIMITS = Timeouts(settle_s=0.0, quiet_s=0.0)


class Driver:
    """Passes events to a core (the server's state machine) in simulated time; measures each."""

    def __init__(self, nodes: int, slots: int) -> None:
        self.core, self.now = Core("benchmark", LIMITS), 0.0
        self.spent: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        for number in range(nodes):
            self.do(events.NodeRegistered(NodeName(f"n{number}"), slots))
        self.reset()

    def reset(self) -> None:
        """Delete the recorded costs."""
        self.spent.clear()
        self.calls.clear()

    def do(self, event: events.Event | None) -> list[commands.Command]:
        """Pass an event to the core, record its cost, and return the core's commands.

        With None, the core only makes a view, the input of the strategy.
        """
        kind, batch = type(event).__name__ if event else "(view)", (event,) if event else ()
        begin = time.thread_time()
        made = self.core.handle_all(batch, self.now)
        self.spent[kind] += time.thread_time() - begin
        self.calls[kind] += 1
        return made

    @property
    def cost(self) -> float:
        """Return the seconds that all events took, without the time to read the clock."""
        return sum(self.spent.values()) - sum(self.calls.values()) * LOOK_S

    def report(self, what: str, units: int) -> float:
        """Print the cost of each kind of event; return the microseconds per unit.

        Args:
            what: the name of the unit, such as a job.
            units: the number of units that the events belong to.
        """
        total = self.cost * 1e6 / units
        print(f"{what}: {total:.1f} us each")
        for kind, spent in sorted(self.spent.items(), key=lambda pair: -pair[1]):
            calls = self.calls[kind]
            each = (spent / calls - LOOK_S) * 1e6
            print(f"    {kind:20} {each:8.1f} us/event {calls / units:6.2f} each")
        return total


def best(scene: Callable[[], Driver]) -> Driver:
    """Run a load several times; return the run with the lowest cost.

    Other work on the machine only adds time.
    """
    return min((scene() for _ in range(REPEATS)), key=lambda driver: driver.cost)


def _look() -> float:
    begin = time.thread_time()
    return time.thread_time() - begin


#: What the clock itself takes, seconds.
LOOK_S = min(_look() for _ in range(1000))


def first_in_line(view: View) -> Plan:
    """Return a plan that starts jobs from the head of the queue while they fit."""
    free, starts = view.free, []
    for job in view.waiting:
        if job.sizes.min > count(free):
            break
        taken = first_fit(free, job.sizes.min)
        starts.append(Start(job.id, taken))
        free &= ~taken
    return Plan(starts=tuple(starts), memory=view.memory)


def run_of(made: Iterable[commands.Command]) -> commands.RunStrategy | None:
    """Return the command of the core to run the strategy; None if ``made`` does not contain it."""
    return next((c for c in made if isinstance(c, commands.RunStrategy)), None)


def spec_of(number: int, sizes: Sizes, submit: float, estimate_s: float | None) -> JobSpec:
    return JobSpec(
        JobId(number), f"job{number}", "ann", JobType.MPI, sizes, submit, estimate_s=estimate_s
    )


# ---------------------------------------------------------------- rigid jobs


class Rigid:
    """A load of rigid jobs that come and go and keep about 128 processors busy."""

    def __init__(self, jobs: int) -> None:
        self.driver, self.rng = Driver(1, PROCESSORS), random.Random(1)
        self.future: list[tuple[float, int, events.Event]] = []
        at = 0.0
        for number in range(1, jobs + 1):
            at += self.rng.expovariate(1 / 280.0)
            size = self.rng.choice((1, 1, 2, 4, 8, 8, 16, 32, 64))
            spec = spec_of(number, Sizes((size,)), at, 4000.0)
            self.future.append((at, number, events.JobSubmitted(spec)))
        self.longest = 0

    def run(self) -> None:
        """Pass events to the core until every job has ended."""
        future, driver = self.future, self.driver
        while future:
            driver.now, _, event = heapq.heappop(future)
            self.take(driver.do(event))

    def take(self, made: Iterable[commands.Command]) -> None:
        for command in made:
            match command:
                case commands.RunStrategy():
                    self.longest = max(self.longest, len(command.view.waiting))
                    plan = first_in_line(command.view)
                    self.take(self.driver.do(events.PlanReady(command.cycle, plan)))
                case commands.Launch():
                    self.launched(command)
                case commands.SetTimer():
                    timer = events.TimerFired(command.timer)
                    heapq.heappush(self.future, (command.at, -command.timer.job, timer))
                case commands.Ended():
                    self.driver.core.forget(command.job)

    def launched(self, order: commands.Launch) -> None:
        for node in sorted(self.driver.core.jobs[order.job].starting):
            ready = events.WorldReady(order.job, order.run, order.resize, NodeName(node))
            self.take(self.driver.do(ready))
        exits = tuple(Exit(processor, 0) for processor in order.processors)
        gone = events.ProcessesExited(order.job, order.run, order.resize, exits)
        end = self.driver.now + min(3999.0, self.rng.expovariate(1 / 1800.0))
        heapq.heappush(self.future, (end, order.job, gone))


def rigid(jobs: int) -> bool:
    longest = 0

    def scene() -> Driver:
        nonlocal longest
        run = Rigid(jobs)
        run.run()
        longest = run.longest
        return run.driver

    total = best(scene).report(f"rigid, up to {longest} waiting", jobs)
    return verdict("rigid job, all its events", total, 60, "us")


# ---------------------------------------------------------------- resizes


class Malleable:
    """A load of twenty malleable jobs; one at a time shrinks, and later grows back to its size."""

    def __init__(self) -> None:
        self.driver = Driver(8, 32)
        for number in range(1, 21):
            self.driver.do(events.JobSubmitted(spec_of(number, Sizes(range(4, 13)), 0.0, None)))
        self.plan(lambda view: Plan(starts=tuple(_split(view, 12))))
        for job in list(self.driver.core.jobs.values()):
            for node in sorted(job.starting):
                self.driver.do(events.WorldReady(job.id, 1, FIRST_START, NodeName(node)))
            sizes = job.spec.sizes
            said = events.ApplicationRegistered(job.id, 1, job.epoch, job.ranks, sizes)
            self.made = self.driver.do(said)
        self.driver.reset()

    def plan(self, strategy: object) -> list[commands.Command]:
        """Make the core request a plan, and answer with the plan of ``strategy``.

        Returns:
            The commands that carry the plan out.
        """
        self.driver.core.state.plan_due = True
        order = run_of(self.driver.do(None))
        assert order is not None
        assert callable(strategy)
        return self.driver.do(events.PlanReady(order.cycle, strategy(order.view)))

    def resize(self, number: int) -> None:
        """Carry out one resize of the job ``number``, from the offer to the last exit."""
        driver = self.driver
        driver.now += 1.0
        job = driver.core.jobs[JobId(number)]
        made = self.plan(lambda view: _resized(view, number))
        offer = next(c for c in made if isinstance(c, commands.SendOffer)).template
        driver.do(events.OfferAnswered(job.id, 1, replace(offer, verb=Verb.ACCEPT)))
        resize = job.resize
        assert resize is not None
        nodes = resize.stage.nodes if isinstance(resize.stage, Preparing) else ()
        for node in sorted(nodes):
            driver.do(events.WorldReady(job.id, 1, resize.id, NodeName(node)))
        driver.do(events.ResizeBegun(job.id, 1, resize.id))
        done = events.ResizeDecided(job.id, 1, resize.id, True, job.epoch + 1, resize.after)
        leaving = resize.leaving
        driver.do(done)
        if leaving:
            exits = tuple(Exit(processor, 0) for processor in indices(leaving))
            driver.do(events.ProcessesExited(job.id, 1, FIRST_START, exits))


def _split(view: View, each: int) -> Iterable[Start]:
    free = view.free
    for job in view.waiting:
        taken = first_fit(free, each)
        free &= ~taken
        yield Start(job.id, taken)


def _resized(view: View, number: int) -> Plan:
    job = next(job for job in view.running if job.id == number)
    if job.size > 4:
        return Plan(shrinks=(Offer(job.id, keep_first(job.ranks, 4)),))
    return Plan(expands=(Offer(job.id, from_indices(job.ranks) | first_fit(view.free, 8)),))


def malleable() -> bool:
    def scene() -> Driver:
        run = Malleable()
        for turn in range(RESIZES):
            run.resize(turn // 2 % 20 + 1)
        return run.driver

    total = best(scene).report("resizes of 20 running jobs", RESIZES)
    return verdict("resize, the whole transaction", total, 300, "us")


# ---------------------------------------------------------------- one pass on a large machine


def large_pass() -> bool:
    """Measure a scheduling pass on a full large machine; return whether it is within its budget.

    A job ends, the view for the strategy is made, and the next job starts.
    """
    what = f"pass, {WAITING} waiting, {RUNNING} running, {MANY} processors"
    total = best(_large_pass).report(what, 100)
    return verdict("pass on a large machine, the core's part", total / 1000, 5, "ms")


def _large_pass() -> Driver:
    driver = Driver(MANY // 100, 100)
    for number in range(1, RUNNING + WAITING + 1):
        driver.do(events.JobSubmitted(spec_of(number, Sizes((MANY // RUNNING,)), 0.0, 100.0)))
    order = run_of(driver.do(events.NodeRecovered(NodeName("n0"))))
    if order is None:
        driver.core.state.plan_due = True
        order = run_of(driver.core.handle_all((), 0.0))
    assert order is not None
    driver.do(events.PlanReady(order.cycle, first_in_line(order.view)))
    for job in driver.core.jobs.values():
        for node in sorted(job.starting):
            driver.do(events.WorldReady(job.id, 1, FIRST_START, NodeName(node)))
    driver.reset()
    for number in range(1, 101):
        driver.now += 1.0
        job = driver.core.jobs[JobId(number)]
        exits = tuple(Exit(processor, 0) for processor in job.ranks)
        order = run_of(driver.do(events.ProcessesExited(job.id, 1, FIRST_START, exits)))
        assert order is not None
        driver.do(events.PlanReady(order.cycle, first_in_line(order.view)))
    return driver


def main(arguments: list[str]) -> int:
    """Run all three measurements; return 1 if one is over budget, else 0."""
    jobs = int(next((a for a in arguments if a.isdecimal()), JOBS))
    if "--profile" in arguments:
        scene = Rigid(jobs)
        cProfile.runctx("scene.run()", globals(), {"scene": scene}, sort="tottime")
        return 0
    return 0 if all([rigid(jobs), malleable(), large_pass()]) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

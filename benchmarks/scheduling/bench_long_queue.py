"""Cost of a long queue for each job in it: processor time and bytes to store.

In each turn one job ends, others start, and a new one is submitted, while thousands wait. The
benchmark measures the work of the server's execute thread for this, without the disk: the core, the
strategy, and the records of the jobs that are stored. One run compares four strategies: ``fcfs``;
the default strategy; the default strategy with a reason for each waiting job that changes in each
pass, because it names the number of free processors (as earlier versions did); and the default
strategy with the same reason for all jobs, as a strategy of a third party may give it.

Budgets: the default strategy, which looks at the whole queue in each pass, takes at most 10 ms for
each job, and stores at most twice the bytes of ``fcfs``.

``python benchmarks/scheduling/bench_long_queue.py [WAITING [TURNS]]``
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pliant.core import Core, Timeouts, commands, events
from pliant.core.model.jobs import Exit, JobSpec, JobType
from pliant.core.model.views_and_plans import Plan, View, WaitingJob
from pliant.core.state.json_records import job_to_record
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.processors import count
from pliant.core.values.sizes import Sizes
from pliant.strategies import load_strategy
from pliant.strategies.policies.availability_estimate import processors_needed_text

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchkit import verdict

WAITING, TURNS = 4_800, 100
PROCESSORS = 128
MOST_MS, MORE_BYTES = 10.0, 2.0
DEFAULT = "equipartition"
Planner = Callable[[View], Plan]


@dataclass
class Cost:
    """The cost of one job that passes through the queue: processor time, and what is stored."""

    ms: float
    kilobytes: float
    records: float


class Scene:
    """A simulated server: a machine without free processors, a queue, and a strategy."""

    def __init__(self, planner: Planner, waiting: int) -> None:
        self.core: Core = Core("benchmark", Timeouts(settle_s=0.0, quiet_s=0.0))
        self.planner, self.rng = planner, random.Random(7)
        self.bytes = self.records = self.submitted = 0
        self.now = 0.0
        self.do(events.NodeRegistered(NodeName("n"), PROCESSORS))
        self.do(*(self.submission() for _ in range(waiting)))

    def submission(self) -> events.Event:
        """Return the submission of a job. Half of the jobs are rigid, half have several sizes."""
        self.submitted += 1
        least = self.rng.choice((4, 8, 16, 32))
        sizes = Sizes((least,)) if self.rng.random() < 0.5 else Sizes(range(least, 2 * least + 1))
        name = f"job{self.submitted}"
        spec = JobSpec(JobId(self.submitted), name, "ann", JobType.MPI, sizes, self.now)
        return events.JobSubmitted(replace(spec, estimate_s=100.0))

    def do(self, *batch: events.Event) -> None:
        """Pass events to the core, and carry out its commands until there are no more."""
        made = self.core.handle_all(batch, self.now)
        while made:
            follow: list[events.Event] = []
            for command in made:
                match command:
                    case commands.Store():
                        self.store(command)
                    case commands.Launch():
                        ready = command.job, command.run, command.resize, NodeName("n")
                        follow.append(events.WorldReady(*ready))
                    case commands.RunStrategy():
                        plan = self.planner(command.view)
                        follow.append(events.PlanReady(command.cycle, plan))
            made = self.core.handle_all(follow, self.now) if follow else []

    def store(self, command: commands.Store) -> None:
        """Encode the records that the server would store for a command."""
        for number in command.jobs:
            self.bytes += len(json.dumps(job_to_record(self.core.jobs[number])))
            self.records += 1

    def turn(self) -> None:
        """End the job that has run longest, and submit another one."""
        self.now += 1.0
        job = next(iter(self.core.state.active.values()))
        exits = tuple(Exit(processor, 0) for processor in job.ranks)
        self.do(events.ProcessesExited(job.id, job.run, FIRST_START, exits))
        self.core.forget(job.id)
        self.do(self.submission())


def measure(planner: Planner, waiting: int, turns: int) -> Cost:
    """Do ``turns`` turns with ``waiting`` jobs in the queue; return the cost of one job."""
    scene = Scene(planner, waiting)
    scene.bytes = scene.records = 0
    begin = time.thread_time()
    for _ in range(turns):
        scene.turn()
    spent = time.thread_time() - begin
    return Cost(spent * 1e3 / turns, scene.bytes / 1024 / turns, scene.records / turns)


def with_texts(text: Callable[[View, WaitingJob], str]) -> Planner:
    """Return the default strategy, but with ``text`` as the reason of each job that waits."""
    strategy = load_strategy(DEFAULT)

    def plan(view: View) -> Plan:
        made = strategy.plan(view)
        started = {start.job for start in made.starts}
        left = [job for job in view.waiting if job.id not in started]
        return replace(made, reasons={job.id: text(view, job) for job in left}, behind="")

    return plan


def live_text(view: View, job: WaitingJob) -> str:
    """Return a reason to wait that names the number of free processors, so it often changes."""
    return processors_needed_text(job, count(view.free))


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 if the default strategy is over budget, else 0."""
    numbers = [int(word) for word in arguments]
    waiting, turns = (*numbers, *(WAITING, TURNS)[len(numbers) :])
    planners: dict[str, Planner] = {
        "fcfs": load_strategy("fcfs").plan,
        DEFAULT: load_strategy(DEFAULT).plan,
        f"{DEFAULT}, a sentence for each job (as before)": with_texts(live_text),
        f"{DEFAULT}, the same text for all": with_texts(lambda *_: "waits"),
    }
    print(f"{waiting} waiting, {turns} jobs go through; for each of them:")
    print(f"{'strategy':55} {'ms':>8} {'KiB':>9} {'records':>8}")
    found = {name: measure(planner, waiting, turns) for name, planner in planners.items()}
    for name, cost in found.items():
        print(f"{name:55} {cost.ms:8.2f} {cost.kilobytes:9.1f} {cost.records:8.1f}")
    ours, least = found[DEFAULT], found["fcfs"]
    good = verdict("processor time of a job, default strategy", ours.ms, MOST_MS, "ms")
    more = ours.kilobytes / least.kilobytes
    return 0 if verdict("bytes, times those of fcfs", more, MORE_BYTES, "") and good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

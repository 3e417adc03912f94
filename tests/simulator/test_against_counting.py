"""The whole simulator against a loop that only counts: Kumar's jobs under equipartition.

The loop knows no core, no plans and no processors: it keeps the work that is left and the share of
each job, and recomputes all shares by the rule of the paper (3.2.2) at each arrival and each end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from pliant.simulator import Settings, SimJob, simulate
from pliant.simulator.inputs.models import kumar

PROCESSORS = 64
#: Seconds of work that rounding may leave of a job.
NOTHING = 1e-5


@dataclass
class Counted:
    job: SimJob
    left: float
    share: int = 0


def mean_turnaround(jobs: Sequence[SimJob], speedup: Callable[[int], float]) -> float:
    waiting, running, now, taken = list(jobs), list[Counted](), 0.0, 0.0
    queue: list[SimJob] = []
    while waiting or queue or running:
        arrival = waiting[0].submit if waiting else math.inf
        end = min((now + it.left / speedup(it.share) for it in running), default=math.inf)
        step, now = min(arrival, end) - now, min(arrival, end)
        for it in running:
            it.left -= step * speedup(it.share)
        if end <= arrival:
            taken += sum(now - it.job.submit for it in running if it.left <= NOTHING)
            running = [it for it in running if it.left > NOTHING]
        else:
            queue.append(waiting.pop(0))
        queue = admit(queue, running)
        share_out(running)
    return taken / len(jobs)


def admit(queue: list[SimJob], running: list[Counted]) -> list[SimJob]:
    budget, left = PROCESSORS - sum(it.job.sizes.min for it in running), []
    for job in queue:
        if job.sizes.min <= budget:
            running.append(Counted(job, job.work))
            budget -= job.sizes.min
        else:
            left.append(job)
    return left


def share_out(running: list[Counted]) -> None:
    for it in running:
        it.share = it.job.sizes.min
    surplus = PROCESSORS - sum(it.share for it in running)
    while surplus and (below := [it for it in running if it.share < it.job.sizes.max]):
        # One to each in the order of their start; the last round ends with the surplus.
        for it in below[:surplus]:
            it.share += 1
        surplus -= min(surplus, len(below))


@pytest.mark.parametrize("job_class", ["adaptive", "traditional"])
@pytest.mark.parametrize("speedup", ["linear", "benchmark"])
@pytest.mark.parametrize("gap", [200, 70])
def test_the_simulator_agrees_with_counting_by_hand(
    job_class: str, speedup: str, gap: float
) -> None:
    jobs = kumar(jobs=300, gap=gap, job_class=job_class, speedup=speedup, minpe="4-64").jobs  # type: ignore[arg-type]
    curve = jobs[0].speedup
    metrics = simulate(jobs, Settings(processors=PROCESSORS)).metrics
    assert metrics["completed"] == 300
    assert metrics["mean_turnaround_s"] == pytest.approx(mean_turnaround(jobs, curve), rel=1e-9)

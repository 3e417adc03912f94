"""Make jobs malleable or evolving. Their run times at the requested size do not change."""

import dataclasses
from itertools import pairwise
from random import Random
from typing import Literal

from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.models.size_rules_from_request import SizeRule, SpeedupRule
from pliant.simulator.inputs.workload import Phase, SimJob, Workload, WorkloadError

Spread = Literal["even", "random"]
#: The fewest and the most phases of an evolving job.
_PHASES = (2, 5)


def make_malleable(
    workload: Workload,
    percent: float,
    sizes: Sizes | SizeRule | None,
    spread: Spread,
    rng: Random,
    speedup: SpeedupRule | None = None,
) -> Workload:
    """Make a percentage of the jobs malleable (Ghafoor 3.3.2), and return the new workload.

    Args:
        workload: the workload, which is not changed.
        percent: the percentage of jobs to make malleable.
        sizes: the sizes of malleable jobs: the same for all of them, or a rule that depends on
            the request of each job; None for 1 to all processors of the machine.
        spread: ``even`` for equal distances in the order of submission, ``random`` for a random
            choice.
        rng: the random generator for the random choice.
        speedup: the speedup of malleable jobs as a rule that depends on the request of each job,
            whose run time on the requested size does not change; None to keep each job's speedup.

    Raises:
        WorkloadError: the percentage is not from 0 to 100, the machine cannot give such sizes, or
            its size is not known although it is needed.
    """
    allowed = _allowed(workload, sizes)
    chosen = _choose(len(workload.jobs), percent, spread, rng)

    def changed(job: SimJob) -> SimJob:
        own = allowed(job.requested) if callable(allowed) else allowed
        if speedup is None:
            return dataclasses.replace(job, sizes=own, malleable=True)
        model = speedup(job.requested)
        work = job.runtime * model(job.requested)
        return dataclasses.replace(job, sizes=own, malleable=True, speedup=model, work=work)

    return workload.with_jobs(
        changed(job) if place in chosen else job for place, job in enumerate(workload.jobs)
    )


def make_evolving(workload: Workload, percent: float, rng: Random) -> Workload:
    """Make a percentage of the jobs evolving: their demand changes while they run.

    The run of such a job has two to five phases, which share its work at random. The first phase
    demands the requested size. Each further phase demands half of the previous demand, the same, or
    twice as much, up to the size of the machine. A phase can run on half of its demand.

    Raises:
        WorkloadError: the percentage is not from 0 to 100.
    """
    chosen = _choose(len(workload.jobs), percent, "random", rng)
    limit = workload.processors
    return workload.with_jobs(
        _evolving(job, limit, rng) if place in chosen else job
        for place, job in enumerate(workload.jobs)
    )


def _allowed(workload: Workload, sizes: Sizes | SizeRule | None) -> Sizes | SizeRule:
    limit = workload.processors
    if callable(sizes):
        return sizes if limit is None else _limited(sizes, limit)
    if sizes is None:
        if limit is None:
            raise WorkloadError("the size of the machine is not known: name the sizes")
        return Sizes(range(1, limit + 1))
    allowed = sizes if limit is None else sizes.up_to(limit)
    if allowed is None:
        raise WorkloadError(f"sizes {sizes}: the machine has only {limit} processors")
    return allowed


def _limited(rule: SizeRule, limit: int) -> SizeRule:
    """Return the rule with sizes limited to ``limit`` processors."""
    found: dict[int, Sizes] = {}

    def sizes_of(requested: int) -> Sizes:
        if requested not in found:
            sizes = rule(requested)
            allowed = sizes.up_to(limit)
            if allowed is None:
                raise WorkloadError(
                    f"sizes {sizes} of a job that requested {requested}: "
                    f"the machine has only {limit} processors"
                )
            found[requested] = allowed
        return found[requested]

    return sizes_of


def _choose(count: int, percent: float, spread: Spread, rng: Random) -> frozenset[int]:
    if not 0 <= percent <= 100:
        raise WorkloadError(f"expected a share between 0 and 100 percent, not {percent:g}")
    wanted = round(count * percent / 100)
    if spread == "random":
        return frozenset(rng.sample(range(count), wanted))
    return frozenset(place * count // wanted for place in range(wanted))


def _evolving(job: SimJob, limit: int | None, rng: Random) -> SimJob:
    count = rng.randint(*_PHASES)
    cuts = [0.0, *sorted(rng.random() for _ in range(count - 1)), 1.0]
    phases, demand = [], job.requested
    for begin, end in pairwise(cuts):
        phases.append(Phase(job.work * (end - begin), max(1, demand // 2), demand))
        demand = max(1, rng.choice((demand // 2, demand, demand * 2)))
        demand = demand if limit is None else min(demand, limit)
    low = min(phase.minimum for phase in phases)
    high = max(phase.maximum for phase in phases)
    return dataclasses.replace(job, sizes=Sizes(range(low, high + 1)), phases=tuple(phases))

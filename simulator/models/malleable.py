"""Jobs that may change size, in any workload. The work of every job stays what it was."""

import dataclasses
from itertools import pairwise
from random import Random
from typing import Literal

from pliant.core.sizes import Sizes
from pliant.simulator.workload import Phase, SimJob, Workload, WorkloadError

Spread = Literal["even", "random"]
#: Fewest and most phases of an evolving job.
_PHASES = (2, 5)


def make_malleable(
    workload: Workload, percent: float, sizes: Sizes | None, spread: Spread, rng: Random
) -> Workload:
    """Make a share of the jobs malleable (Ghafoor 3.3.2): one range of sizes for all of them.

    Args:
        workload: stays as it is.
        percent: of the jobs.
        sizes: of the malleable jobs; None: from 1 to all processors of the machine.
        spread: ``even``: at equal distances in the order of submission; ``random``: anywhere.
        rng: chooses them when they are spread at random.

    Raises:
        WorkloadError: the share is not between 0 and 100, the machine cannot give such sizes, or
            its size is not known although it is needed.
    """
    allowed = _allowed(workload, sizes)
    chosen = _choose(len(workload.jobs), percent, spread, rng)
    return workload.with_jobs(
        dataclasses.replace(job, sizes=allowed, malleable=True) if place in chosen else job
        for place, job in enumerate(workload.jobs)
    )


def make_evolving(workload: Workload, percent: float, rng: Random) -> Workload:
    """Let a share of the jobs ask for other sizes as they run: phases with demands of their own.

    Such a job has two to five phases, which part its work at random. It begins with what it
    requested; each further phase demands the half, the same or the double of the one before, within
    the machine. A phase can do with half of what it demands.

    Raises:
        WorkloadError: the share is not between 0 and 100.
    """
    chosen = _choose(len(workload.jobs), percent, "random", rng)
    limit = workload.processors
    return workload.with_jobs(
        _evolving(job, limit, rng) if place in chosen else job
        for place, job in enumerate(workload.jobs)
    )


def _allowed(workload: Workload, sizes: Sizes | None) -> Sizes:
    limit = workload.processors
    if sizes is None:
        if limit is None:
            raise WorkloadError("the size of the machine is not known: name the sizes")
        return Sizes(range(1, limit + 1))
    allowed = sizes if limit is None else sizes.up_to(limit)
    if allowed is None:
        raise WorkloadError(f"sizes {sizes}: the machine has only {limit} processors")
    return allowed


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

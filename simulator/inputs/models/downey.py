"""Downey's model of 1997 (jobs with a speedup curve and log-uniform work), Ghafoor's workload."""

from random import Random
from typing import Literal

from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Downey, Speedup
from pliant.simulator.inputs.models import sampling
from pliant.simulator.inputs.models.malleable import Spread, make_malleable
from pliant.simulator.inputs.workload import SimJob, Workload


def downey(  # noqa: PLR0913 - the parameters of the model
    *,
    jobs: int = 1000,
    gap: float = 600.0,
    processors: int = 128,
    parallelism: str = "1-128",
    work: str = "6-133000",
    sigma: float = 2.0,
    speedup: Literal["downey", "linear"] = "downey",
    malleable: float = 0.0,
    flexibility: str = "",
    spread: Spread = "even",
    seed: int = 0,
) -> Workload:
    """Make a workload of jobs that can each run on many numbers of processors.

    Average parallelism and work are log-uniform, the variance of parallelism is uniform, arrivals
    are a Poisson process. A rigid job asks for its average parallelism. The default range of the
    work is Downey's fit of the batch jobs of the SDSC Paragon in 1995.

    Args:
        jobs: the number of jobs.
        gap: mean seconds between two arrivals.
        processors: the number of processors of the machine.
        parallelism: range of the average parallelism A; limited to the size of the machine.
        work: range of the work, in seconds on one processor.
        sigma: the variance of parallelism is uniform between 0 and this.
        speedup: ``linear`` for jobs without a speedup curve, as in Ghafoor (3.3.2).
        malleable: percentage of the jobs that are malleable.
        flexibility: their sizes, such as ``1-64:pow2``; empty for 1 to all processors.
        spread: the way to choose the malleable jobs (``even`` or ``random``).
        seed: the seed of all random numbers.

    Raises:
        WorkloadError: a parameter is invalid.
    """
    sampling.require("jobs", jobs >= 1, "at least 1", jobs)
    sampling.require("gap", gap >= 0, "seconds >= 0", gap)
    sampling.require("processors", processors >= 1, "at least 1", processors)
    sampling.require("sigma", sigma >= 0, "a number >= 0", sigma)
    low, high = sampling.bounds("parallelism", parallelism)
    sampling.require("parallelism", low >= 1, "at least 1", parallelism)
    least, most = sampling.bounds("work", work)
    rng, made, now = Random(seed), [], 0.0
    for number in range(1, jobs + 1):
        average = sampling.log_uniform(rng, low, high)
        seconds = sampling.log_uniform(rng, least, most)
        variance = rng.uniform(0.0, sigma)
        curve = Downey(average, variance) if speedup == "downey" else LINEAR
        size = min(processors, max(1, round(average)))
        made.append(_job(number, now, seconds, size, curve))
        now += sampling.draw_interarrival_s(rng, gap)
    workload = Workload(made, processors, name="downey")
    sizes = sampling.sizes("flexibility", flexibility) if flexibility else None
    return make_malleable(workload, malleable, sizes, spread, rng) if malleable else workload


def ghafoor(  # noqa: PLR0913 - the parameters of the model
    *,
    jobs: int = 1000,
    gap: float = 20.0,
    processors: int = 256,
    sizes: str = "16-128",
    times: str = "100-3600",
    malleable: float = 0.0,
    flexibility: str = "2-128",
    spread: Spread = "even",
    seed: int = 0,
) -> Workload:
    """Make the workload of Ghafoor's chapter 6: sizes and run times log-uniform, linear speedup.

    The dissertation gives the ranges only. The distributions and the arrival rate are calibrated so
    that they reproduce the rigid row of its Table 6.2.

    Args:
        jobs: the number of jobs.
        gap: mean seconds between two arrivals of a Poisson process.
        processors: the number of processors of the machine.
        sizes: range of the processors that rigid jobs ask for.
        times: range of their run times there, in seconds.
        malleable: percentage of the jobs that are malleable; their work stays the same.
        flexibility: their sizes, such as ``2-128`` or ``1-64:pow2``.
        spread: the way to choose the malleable jobs (``even`` or ``random``).
        seed: the seed of all random numbers.

    Raises:
        WorkloadError: a parameter is invalid.
    """
    sampling.require("jobs", jobs >= 1, "at least 1", jobs)
    sampling.require("gap", gap >= 0, "seconds >= 0", gap)
    sampling.require("processors", processors >= 1, "at least 1", processors)
    low, high = sampling.bounds("sizes", sizes)
    shortest, longest = sampling.bounds("times", times)
    sampling.require("sizes", low >= 1 and high <= processors, f"1-{processors} at most", sizes)
    rng, made, now = Random(seed), [], 0.0
    for number in range(1, jobs + 1):
        size = round(sampling.log_uniform(rng, low, high))
        seconds = sampling.log_uniform(rng, shortest, longest)
        made.append(_job(number, now, seconds * size, size, LINEAR))
        now += sampling.draw_interarrival_s(rng, gap)
    workload = Workload(made, processors, name="ghafoor")
    allowed = sampling.sizes("flexibility", flexibility)
    return make_malleable(workload, malleable, allowed, spread, rng) if malleable else workload


def _job(number: int, submit: float, work: float, size: int, speedup: Speedup) -> SimJob:
    """Return a rigid job whose estimate is exactly its run time."""
    estimate = work / speedup(size)
    return SimJob(number, submit, work, Sizes((size,)), size, estimate, speedup)

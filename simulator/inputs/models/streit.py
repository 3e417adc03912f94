"""Rigid jobs with estimates, with the means of Streit's job sets (2002, Table 1)."""

import functools
import math
from random import Random
from statistics import NormalDist

from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.models import sampling
from pliant.simulator.inputs.workload import SimJob, Workload

#: The shortest estimate, in seconds.
_SHORTEST_S = 300.0
#: Points of the numerical mean of sizes, and steps of the search for a parameter.
_POINTS, _STEPS = 1000, 60


def streit(  # noqa: PLR0913 - the parameters of the model
    *,
    jobs: int = 8469,
    gap: float = 628.19,
    processors: int = 96,
    mean_size: float = 13.49,
    mean_time: float = 2835.83,
    mean_estimate: float = 6697.88,
    correlation: float = 0.0,
    seed: int = 0,
) -> Workload:
    """Make jobs with given means of sizes, run times, estimates and gaps.

    The source gives means only. All laws are assumed: Poisson arrivals; sizes ``P ** (u ** k)``
    with the ``k`` that gives the mean; estimates log-uniform from 300 s on; run times a random part
    of the estimate, independent of it. The defaults are those of set1.

    Args:
        jobs: the number of jobs.
        gap: mean seconds between two arrivals.
        processors: the number of processors of the machine.
        mean_size: mean processors of a job.
        mean_time: mean run time, in seconds.
        mean_estimate: mean of the users' estimates, in seconds; no job runs longer than it.
        correlation: the correlation of sizes and estimates, from -1 to 1, as that of the normal
            variables behind them.
        seed: the seed of all random numbers.

    Raises:
        WorkloadError: a parameter is invalid.
    """
    sampling.require("jobs", jobs >= 1, "at least 1", jobs)
    sampling.require("gap", gap >= 0, "seconds >= 0", gap)
    sampling.require("processors", processors >= 1, "at least 1", processors)
    sampling.require(
        "mean_size", 1 < mean_size < processors, f"between 1 and {processors}", mean_size
    )
    fits = _SHORTEST_S < mean_estimate < 1e7
    sampling.require("mean_estimate", fits, f"between {_SHORTEST_S:g} and 1e7 s", mean_estimate)
    sampling.require(
        "mean_time", 0 < mean_time <= mean_estimate, "above 0, at most mean_estimate", mean_time
    )
    sampling.require("correlation", -1 <= correlation <= 1, "between -1 and 1", correlation)
    power = _power_of_sizes(processors, mean_size)
    longest = _longest_estimate(mean_estimate)
    part = mean_estimate / mean_time - 1  # The mean of u ** part is mean_time / mean_estimate.
    rest = math.sqrt(1 - correlation**2)
    normal, rng, made, now = NormalDist(), Random(seed), [], 0.0
    for number in range(1, jobs + 1):
        first, second = rng.gauss(0.0, 1.0), rng.gauss(0.0, 1.0)
        wide = normal.cdf(first)
        long = normal.cdf(correlation * first + rest * second)
        size = min(processors, max(1, round(processors ** (wide**power))))
        estimate = _SHORTEST_S * (longest / _SHORTEST_S) ** long
        seconds = max(1.0, estimate * rng.random() ** part)
        made.append(SimJob(number, now, seconds * size, Sizes((size,)), size, estimate))
        now += sampling.draw_interarrival_s(rng, gap)
    return Workload(made, processors, name="streit")


@functools.cache
def _power_of_sizes(processors: int, mean: float) -> float:
    """Return the exponent k for which the mean of ``processors ** (u ** k)`` is ``mean``.

    ``u`` is uniformly distributed between 0 and 1.
    """

    def mean_of(power: float) -> float:
        points = ((each + 0.5) / _POINTS for each in range(_POINTS))
        return math.fsum(processors ** (u**power) for u in points) / _POINTS

    low, high = 1e-3, 1e3
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if mean_of(middle) > mean else (low, middle)
    return low


def _longest_estimate(mean: float) -> float:
    """Return the upper bound for which log-uniform estimates from 300 s on have this mean."""
    low, high = mean, mean * 1e4
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        found = (middle - _SHORTEST_S) / math.log(middle / _SHORTEST_S)
        low, high = (middle, high) if found < mean else (low, middle)
    return low

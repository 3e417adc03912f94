"""The workload of Kumar's simulations (2001, chapter 4): one program, random amounts of work."""

from random import Random
from typing import Literal

from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup, SpeedupError, Table, parse_speedup
from pliant.simulator.inputs.costs import MAX_S
from pliant.simulator.inputs.models import sampling
from pliant.simulator.inputs.workload import SimJob, Workload, WorkloadError

#: The molecular dynamics program (Table 4.1).
BENCHMARK = Table(((1, 1.0), (2, 1.8), (4, 3.4), (8, 6.3), (16, 11.2), (32, 18.1), (64, 26.3)))


def kumar(  # noqa: PLR0913 - the parameters of the model
    *,
    jobs: int = 10_000,
    gap: float = 100.0,
    processors: int = 64,
    base_time: float = 64.5,
    speedup: str = "linear",
    minpe: str = "16-64",
    job_class: Literal["adaptive", "traditional"] = "adaptive",
    profit: float = 0.0,
    deadline: float = 0.0,
    soft: float = 0.5,
    streams: Literal["independent", "shared"] = "independent",
    seed: int = 0,
) -> Workload:
    """Make a workload with Poisson arrivals and exponentially distributed work.

    With the same seed, both classes of jobs have the same arrivals, work and smallest sizes, so
    that they can be compared.

    Args:
        jobs: the number of jobs.
        gap: mean seconds between two arrivals.
        processors: the number of processors of the machine.
        base_time: mean run time of a job on all processors, in seconds.
        speedup: ``linear``, ``benchmark`` (Table 4.1), or any speedup model.
        minpe: range of the smallest size of an adaptive job (its largest size is the machine), and
            of the only size of a traditional job; uniformly distributed.
        job_class: the class of all jobs.
        profit: mean of the exponentially distributed profit of a job that ends in time.
        deadline: mean of the exponentially distributed deadline, in seconds from the arrival; 0 for
            jobs without contracts.
        soft: the part of the deadline within which a job earns its full profit.
        streams: with ``shared``, one random number determines a gap and the work of the next job.
            The paper does not say so, but its printed response times follow from it.
        seed: the seed of all random numbers.

    Raises:
        WorkloadError: a parameter is invalid.
    """
    sampling.require("jobs", jobs >= 1, "at least 1", jobs)
    sampling.require("processors", processors >= 1, "at least 1", processors)
    sampling.require("base_time", base_time > 0, "seconds > 0", base_time)
    for name, value in (("gap", gap), ("profit", profit), ("deadline", deadline)):
        fits = 0 <= value <= MAX_S
        sampling.require(name, fits, f"a number from 0 to {MAX_S:g}", value)
    sampling.require("soft", 0 <= soft <= 1, "a part between 0 and 1", soft)
    smallest = sampling.sizes("minpe", minpe)
    sampling.require("minpe", smallest.max <= processors, f"at most {processors}", minpe)
    curve = curve_of(speedup)
    rng, made, now = Random(seed), [], 0.0
    for number in range(1, jobs + 1):
        wait, amount = rng.expovariate(1.0), rng.expovariate(1.0)
        now += wait * gap
        work = (wait if streams == "shared" else amount) * base_time * curve(processors)
        low = rng.choice(smallest.values)
        contract = _contract(rng, profit, deadline, soft)
        high = processors if job_class == "adaptive" else low
        made.append(_job(number, now, work, range(low, high + 1), curve, contract))
    return Workload(made, processors, name=f"kumar {job_class}")


def _contract(rng: Random, profit: float, deadline: float, soft: float) -> Contract | None:
    if not deadline:
        return None
    value = rng.expovariate(1.0) * profit
    return Contract(rng.expovariate(1.0) * deadline, value, soft)


def _job(
    number: int, submit: float, work: float, sizes: range, speedup: Speedup, deal: Contract | None
) -> SimJob:
    """Return a job whose estimate is exactly its run time at its largest size."""
    size = sizes[-1]
    return SimJob(
        id=number,
        submit=submit,
        work=work,
        sizes=Sizes(sizes),
        requested=size,
        estimate_s=work / speedup(size),
        speedup=speedup,
        contract=deal,
        malleable=len(sizes) > 1,
    )


def curve_of(text: str) -> Speedup:
    """Return the speedup model that a parameter names.

    Raises:
        WorkloadError: the text does not name a speedup model.
    """
    if text == "linear":
        return LINEAR
    if text == "benchmark":
        return BENCHMARK
    try:
        return parse_speedup(text)
    except SpeedupError as error:
        raise WorkloadError(f"speedup: {error}; or benchmark") from None

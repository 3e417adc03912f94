"""Random draws that several models need. All of them take the generator they draw from."""

import math
from random import Random

from pliant.core.values.sizes import Sizes, SizesError, parse_sizes
from pliant.simulator.inputs.workload import WorkloadError


def log_uniform(rng: Random, low: float, high: float) -> float:
    """A number whose logarithm is uniform between those of the bounds."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def gap(rng: Random, mean: float) -> float:
    """Seconds until the next arrival of a Poisson process; a mean of 0: all at once."""
    return rng.expovariate(1.0) * mean


def bounds(name: str, text: str) -> tuple[float, float]:
    """Read a range of positive numbers like ``100-3600``, or one number.

    Raises:
        WorkloadError: it is none; ``name`` is the parameter it was given for.
    """
    low, dash, high = text.partition("-")
    try:
        first, last = float(low), float(high if dash else low)
    except ValueError:
        first, last = math.nan, math.nan
    if not 0 < first <= last < math.inf:
        raise WorkloadError(f"{name}: expected a range like 100-3600, not {text!r}")
    return first, last


def sizes(name: str, text: str) -> Sizes:
    """Read a size grammar.

    Raises:
        WorkloadError: it is none; ``name`` is the parameter it was given for.
    """
    try:
        return parse_sizes(text)
    except SizesError as error:
        raise WorkloadError(f"{name}: {error}") from None


def require(name: str, ok: bool, expected: str, value: object) -> None:
    """Check one parameter of a model.

    Raises:
        WorkloadError: it is not ok.
    """
    if not ok:
        raise WorkloadError(f"{name}: expected {expected}, not {value!r}")

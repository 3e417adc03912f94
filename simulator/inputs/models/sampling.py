"""Random draws and checks of parameters that several models need."""

import math
from random import Random

from pliant.core.values.sizes import Sizes, SizesError, parse_sizes
from pliant.simulator.inputs.workload import WorkloadError


def log_uniform(rng: Random, low: float, high: float) -> float:
    """Return a random number whose logarithm is uniformly distributed between the bounds."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def draw_interarrival_s(rng: Random, mean: float) -> float:
    """Return random seconds to the next arrival of a Poisson process; 0 if the mean is 0."""
    return rng.expovariate(1.0) * mean


def bounds(name: str, text: str) -> tuple[float, float]:
    """Read a range of positive numbers such as ``100-3600``, or one number.

    Raises:
        WorkloadError: the text is not valid; the message has ``name``, the parameter.
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
    """Read the sizes of a job from a text such as ``2-128`` or ``1-64:pow2``.

    Raises:
        WorkloadError: the text is not valid; the message has ``name``, the parameter.
    """
    try:
        return parse_sizes(text)
    except SizesError as error:
        raise WorkloadError(f"{name}: {error}") from None


def require(name: str, ok: bool, expected: str, value: object) -> None:
    """Check one parameter of a model; ``expected`` describes valid values.

    Raises:
        WorkloadError: ``ok`` is false.
    """
    if not ok:
        raise WorkloadError(f"{name}: expected {expected}, not {value!r}")

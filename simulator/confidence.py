"""Means over seeds with their 95 % confidence intervals (Student's t)."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: The 97.5 % quantile of Student's t for 1, 2, 3, ... degrees of freedom.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_NORMAL = 1.959964


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of independent values and its 95 % confidence interval.

    For a single value, the interval has length 0.
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Interval(mean, mean, mean)
    spread = statistics.stdev(values, mean) / math.sqrt(len(values))
    half = t_quantile(len(values) - 1) * spread
    return Interval(mean, mean - half, mean + half)


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    Above 30 degrees of freedom it is an approximation with an error of at most 0.0002.
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    # The first terms of the expansion around the normal distribution.
    z, v = _NORMAL, freedom
    return z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v * v)

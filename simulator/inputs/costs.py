"""The costs of negotiations and resizes, in seconds: a constant or a ramp (Ghafoor 3.3.4, 3.3.5).

A ramp on [a, b] makes low costs likely and high ones rare. Its density falls linearly to 0 at b, so
a value is drawn as ``b - (b - a) * sqrt(1 - u)`` with u uniform on [0, 1). Its mean is
``a + (b - a) / 3``.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from pliant.simulator.inputs.simulation_errors import SettingsError

#: Longer times and larger amounts of work are invalid, because their sums could be infinite.
MAX_S = 1e30


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost in seconds: constant if both bounds are equal, else random, low values most likely."""

    low: float = 0.0
    high: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.low <= MAX_S and 0 <= self.high <= MAX_S):
            raise SettingsError(
                f"cost {self}: both bounds are numbers of seconds from 0 to {MAX_S:g}"
            )
        if self.low > self.high:
            raise SettingsError(f"cost {self}: the lower bound is above the upper one")

    def __bool__(self) -> bool:
        """Return whether the cost can be above 0."""
        return self.high > 0

    def __str__(self) -> str:
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g}-{self.high:g}"

    def draw(self, rng: Random) -> float:
        """Return a random cost in seconds; its probability falls linearly to 0 at ``high``."""
        if self.low == self.high:
            return self.low
        return self.high - (self.high - self.low) * math.sqrt(1.0 - rng.random())


#: No cost.
FREE = Cost()
#: The cost of writing or reading a checkpoint: 60 GiB of each node's memory at 2 GiB/s.
SAVE = Cost(30.0, 30.0)


def parse_cost(text: str) -> Cost:
    """Read ``S`` or ``A-B``, in seconds.

    Raises:
        SettingsError: the text is not valid. The message says how to write it.
    """
    low, dash, high = text.strip().partition("-")
    try:
        return Cost(_seconds(low), _seconds(high) if dash else _seconds(low))
    except ValueError as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(
            f"cost {text!r}: write seconds as S (constant) or A-B (ramp), such as 8 or 2-20"
        ) from None


def _seconds(text: str) -> float:
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def cycle_cost(costs: Iterable[float], *, parallel: bool) -> float:
    """Return how many seconds the negotiations of one planning cycle take.

    Args:
        costs: the seconds of each negotiation.
        parallel: whether all are held at the same time; otherwise one follows another.
    """
    return max(costs, default=0.0) if parallel else math.fsum(costs)


def adaptation_pause(cost: float, before: int, after: int) -> float:
    """Return for how many seconds a resize stops a job: ``cost`` per added or removed processor.

    This is C x |p1 - p2| of Ghafoor 3.16.
    """
    return cost * abs(before - after)

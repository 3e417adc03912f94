"""What the end of a job is worth: Kumar's contract of profit and deadline (2, 4.2)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contract:
    """Full profit until the soft deadline, then falling linearly to nothing at the deadline."""

    #: Seconds from arrival.
    deadline_s: float
    profit: float = 0.0
    #: The part of ``deadline_s`` with full profit.
    soft: float = 0.5
    #: What is lost when it ends later.
    penalty: float = 0.0

    def __post_init__(self) -> None:
        for name in ("deadline_s", "profit", "penalty"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"contract.{name}: {value!r} is not a number >= 0")
        if not 0 <= self.soft <= 1:
            raise ValueError(f"contract.soft: {self.soft!r} is not between 0 and 1")

    def deadline(self, arrival: float) -> float:
        """When it must have ended, on the clock of ``arrival``."""
        return arrival + self.deadline_s

    def value(self, arrival: float, end: float) -> float:
        """The profit if it ends at ``end``, both in seconds of one clock."""
        taken = end - arrival
        full = self.soft * self.deadline_s
        if taken <= full:
            return self.profit
        if taken <= self.deadline_s:
            return self.profit * (self.deadline_s - taken) / (self.deadline_s - full)
        return -self.penalty

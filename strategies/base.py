"""The contract of a strategy: an immutable view in, a plan out; pure and deterministic.

No clock, no random numbers, no dictionary or set order in a decision; every tie is broken by an
explicit key that ends in the job's id. Third parties register a class under the entry-point group
``pliant.strategies``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pliant.core.scheduling import Availability, Outcome, Plan, View, WaitingJob


class Strategy(ABC):
    """Decides who gets which processors."""

    @abstractmethod
    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Could this job be accepted, when, and on how many processors."""

    @abstractmethod
    def allocate_processors(self, view: View) -> Plan:
        """What to do now."""

    def revise(self, view: View, outcomes: Sequence[Outcome]) -> Plan:
        """Plan again after talks; by default, whoever refused is not resizable in ``view``."""
        del outcomes
        return self.allocate_processors(view)

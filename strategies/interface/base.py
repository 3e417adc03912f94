"""The contract of a strategy: an immutable view in, a plan out; pure and deterministic.

No clock, no random numbers, no dictionary or set order in a decision; every tie is broken by an
explicit key that ends in the job's id. Third parties register a class under the entry-point group
``pliant.strategies``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pliant.core.model.scheduling import Availability, Outcome, Plan, View, WaitingJob


class Strategy(ABC):
    """Decides who gets which processors."""

    #: Whether a job may have processors of several clusters; if not, it waits for ever where it is
    #: wider than each of them.
    spans_clusters: bool = True

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Answer whether this job could be accepted, when, and on how many processors.

        ``jobsub --query`` asks this; nothing is submitted and nothing may change. ``job`` is not
        among ``view.waiting``. The default says that the strategy cannot say.
        """
        del job, view
        return Availability(None, None, 0, "the strategy does not answer queries")

    @abstractmethod
    def allocate_processors(self, view: View) -> Plan:
        """What to do now."""

    def revise(self, view: View, outcomes: Sequence[Outcome]) -> Plan:
        """Plan again after talks that did not go as planned.

        Who refused is not resizable in ``view`` for a while. Who agreed, or would give another
        number, to nobody's use so far can be shrunk to just these sizes without being asked again;
        what the plan does not use of that is withdrawn. The default is to plan as ever.
        """
        del outcomes
        return self.allocate_processors(view)

    def plan(self, view: View, outcomes: Sequence[Outcome] = ()) -> Plan:
        """What ``RunStrategy`` asks for: a plan, or the last one revised."""
        return self.revise(view, outcomes) if outcomes else self.allocate_processors(view)

"""The interface of a strategy: it takes an immutable view of the cluster and returns a plan.

A strategy is pure and deterministic: no clock, no random numbers, and no decision depends on the
order of a dictionary or a set. Every tie is broken by an explicit key that ends in the job's id.
Strategies of third parties are registered as entry points in the group ``pliant.strategies``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pliant.core.model.views_and_plans import Availability, Outcome, Plan, View, WaitingJob


class Strategy(ABC):
    """Decides which jobs get which processors."""

    #: Whether a job may have processors of several clusters. If not, a job that needs more
    #: processors than the largest cluster has never starts.
    spans_clusters: bool = True
    #: Whether it reads ``View.usage``. The server always counts usage; a simulation only if the
    #: strategy uses it.
    uses_usage: bool = False

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return whether a job could be accepted, when it would start, and on how many processors.

        ``jobsub --query`` calls this without submitting anything, so nothing may change. ``job`` is
        not in ``view.waiting``, unless the option ``order`` has inserted it there. The default
        answers that the strategy does not know (``accepted`` is None).
        """
        del job, view
        return Availability(None, None, 0, "the strategy does not answer queries")

    @abstractmethod
    def allocate_processors(self, view: View) -> Plan:
        """Return the plan for this view: which jobs start, and which running jobs are resized."""

    def revise(self, view: View, outcomes: Sequence[Outcome]) -> Plan:
        """Return another plan after negotiations with running jobs that did not end as planned.

        A job that refused is not resizable in ``view`` for some time. If a job has agreed to
        shrink, or has proposed another size, and its processors are not used yet, the new plan can
        shrink it to exactly this size: the job is not asked again. If the plan does not use this
        consent, it is withdrawn. The default ignores the outcomes and plans as usual.

        Args:
            view: the cluster now.
            outcomes: the results of the last plan's negotiations.
        """
        del outcomes
        return self.allocate_processors(view)

    def plan(self, view: View, outcomes: Sequence[Outcome] = ()) -> Plan:
        """Return a plan; if there are outcomes of negotiations, a revised plan."""
        return self.revise(view, outcomes) if outcomes else self.allocate_processors(view)

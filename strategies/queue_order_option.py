"""Another order of the queue for any strategy: the common option ``order``.

Strategies walk ``View.waiting`` from its beginning, which is in order of arrival.
``WithQueueOrder`` sorts it before the strategy sees it. Backfilling, the start of malleable jobs
and agreements with donors then follow this new order. A strategy that sorts the queue itself keeps
its own order, in which only jobs that it ranks as equal follow the new one.
"""

from collections.abc import Sequence
from dataclasses import replace

from pliant.core.model.views_and_plans import Availability, Outcome, Plan, View, WaitingJob
from pliant.strategies.interface.base import Strategy
from pliant.strategies.policies.queue_order import QueueOrder, in_order, queue_with


class WithQueueOrder(Strategy):
    """A strategy that gets the queue in another order than the order of arrival.

    Args:
        inner: the strategy.
        order: the order of the queue.
    """

    def __init__(self, inner: Strategy, *, order: QueueOrder = "fcfs") -> None:
        self.inner = inner
        self._order = order
        self.spans_clusters = inner.spans_clusters
        self.uses_usage = inner.uses_usage or order == "fairshare"

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return the inner strategy's answer for a queue that contains the job at its place."""
        line = in_order(self._order, queue_with(view.waiting, job), view)
        return self.inner.is_available(job, replace(view, waiting=tuple(line)))

    def allocate_processors(self, view: View) -> Plan:
        """Return the plan of the inner strategy for the queue in the chosen order."""
        return self.inner.allocate_processors(self._sorted(view))

    def revise(self, view: View, outcomes: Sequence[Outcome]) -> Plan:
        """Return the revised plan of the inner strategy for the queue in the chosen order."""
        return self.inner.revise(self._sorted(view), outcomes)

    def _sorted(self, view: View) -> View:
        return replace(view, waiting=tuple(in_order(self._order, view.waiting, view)))

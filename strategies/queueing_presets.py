"""The queueing strategies by name: those of Streit 2002, and orders by priority and fair share.

Each one is a ``Composed`` of a queue order and a backfilling rule.
"""

from pliant.strategies.policies.backfill import Backfill
from pliant.strategies.policies.preemption import Preemption
from pliant.strategies.policies.queue_order import Dynp
from pliant.strategies.queueing import Composed


def fcfs() -> Composed:
    """Return ``fcfs``: first come, first served.

    If a job does not fit, no later one starts before it.
    """
    return Composed("fcfs", "none")


def fcfs_easy() -> Composed:
    """Return ``fcfs+easy``: first come, first served, with EASY backfilling."""
    return Composed("fcfs", "easy")


def fcfs_conservative() -> Composed:
    """Return ``fcfs+conservative``: first come, first served, with conservative backfilling."""
    return Composed("fcfs", "conservative")


def sjf() -> Composed:
    """Return ``sjf``: the waiting job with the shortest estimate starts first."""
    return Composed("sjf", "none")


def sjf_easy() -> Composed:
    """Return ``sjf+easy``: shortest estimate first, with EASY backfilling."""
    return Composed("sjf", "easy")


def sjf_conservative() -> Composed:
    """Return ``sjf+conservative``: shortest estimate first, with conservative backfilling."""
    return Composed("sjf", "conservative")


def ljf() -> Composed:
    """Return ``ljf``: the waiting job with the longest estimate starts first."""
    return Composed("ljf", "none")


def ljf_easy() -> Composed:
    """Return ``ljf+easy``: longest estimate first, with EASY backfilling."""
    return Composed("ljf", "easy")


def ljf_conservative() -> Composed:
    """Return ``ljf+conservative``: longest estimate first, with conservative backfilling."""
    return Composed("ljf", "conservative")


def priority() -> Composed:
    """Return ``priority``: highest priority first, equal priorities by arrival."""
    return Composed("priority", "none")


def priority_easy() -> Composed:
    """Return ``priority+easy``: highest priority first, with EASY backfilling."""
    return Composed("priority", "easy")


def priority_conservative() -> Composed:
    """Return ``priority+conservative``: highest priority first, with conservative backfilling."""
    return Composed("priority", "conservative")


def fairshare() -> Composed:
    """Return ``fairshare``: users who have used less than their share go first.

    The jobs of one user start in order of arrival.
    """
    return Composed("fairshare", "none")


def fairshare_easy() -> Composed:
    """Return ``fairshare+easy``: as ``fairshare``, with EASY backfilling."""
    return Composed("fairshare", "easy")


def fairshare_conservative() -> Composed:
    """Return ``fairshare+conservative``: as ``fairshare``, with conservative backfilling."""
    return Composed("fairshare", "conservative")


def priority_preempt(*, min_run_s: float = 60.0, backfill: Backfill = "none") -> Composed:
    """Return ``priority+preempt``: running jobs are suspended for the first job that does not fit.

    Args:
        min_run_s: seconds after each start of a job in which the job is not suspended.
        backfill: which jobs may start before jobs that are ahead of them in the queue.
    """
    return Composed("priority", backfill, preemption=Preemption(min_run_s))


def priority_easy_preempt(*, min_run_s: float = 60.0) -> Composed:
    """Return ``priority+easy+preempt``: as ``priority+preempt``, with EASY backfilling.

    Args:
        min_run_s: seconds after each start of a job in which the job is not suspended.
    """
    return priority_preempt(min_run_s=min_run_s, backfill="easy")


def priority_conservative_preempt(*, min_run_s: float = 60.0) -> Composed:
    """Return ``priority+conservative+preempt``.

    This is ``priority+preempt`` with conservative backfilling.

    Args:
        min_run_s: seconds after each start of a job in which the job is not suspended.
    """
    return priority_preempt(min_run_s=min_run_s, backfill="conservative")


def dynp(
    *,
    lower: float = 7200.0,
    upper: float = 9000.0,
    threshold: int = 5,
    backfill: Backfill = "conservative",
) -> Composed:
    """Return ``dynp``: chooses sjf, fcfs or ljf by the mean estimate of the waiting jobs.

    Args:
        lower: at or below this mean, in seconds, the shortest job goes first.
        upper: above this mean, in seconds, the longest job goes first.
        threshold: with fewer waiting jobs the order does not change.
        backfill: which jobs may start before jobs that are ahead of them in the queue.
    """
    return Composed(Dynp(lower, upper, threshold), backfill)


def dynp_easy(*, lower: float = 7200.0, upper: float = 9000.0, threshold: int = 5) -> Composed:
    """Return ``dynp+easy``: dynP with EASY backfilling.

    Args:
        lower: at or below this mean, in seconds, the shortest job goes first.
        upper: above this mean, in seconds, the longest job goes first.
        threshold: with fewer waiting jobs the order does not change.
    """
    return Composed(Dynp(lower, upper, threshold), "easy")


def dynp_conservative(
    *, lower: float = 7200.0, upper: float = 9000.0, threshold: int = 5
) -> Composed:
    """Return ``dynp+conservative``, the same as ``dynp``.

    Args:
        lower: at or below this mean, in seconds, the shortest job goes first.
        upper: above this mean, in seconds, the longest job goes first.
        threshold: with fewer waiting jobs the order does not change.
    """
    return Composed(Dynp(lower, upper, threshold), "conservative")

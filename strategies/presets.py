"""The queueing strategies by name: those of Streit 2002, and by priority; all are compositions."""

from pliant.strategies.composed import Composed
from pliant.strategies.policies.backfill import Backfill
from pliant.strategies.policies.preemption import Preemption
from pliant.strategies.policies.queue_order import Dynp


def fcfs() -> Composed:
    """``fcfs``: first come, first served; nobody passes the first that does not fit."""
    return Composed("fcfs", "none")


def fcfs_easy() -> Composed:
    """``fcfs+easy``."""
    return Composed("fcfs", "easy")


def fcfs_conservative() -> Composed:
    """``fcfs+conservative``."""
    return Composed("fcfs", "conservative")


def sjf() -> Composed:
    """``sjf``: shortest estimate first."""
    return Composed("sjf", "none")


def sjf_easy() -> Composed:
    """``sjf+easy``."""
    return Composed("sjf", "easy")


def sjf_conservative() -> Composed:
    """``sjf+conservative``."""
    return Composed("sjf", "conservative")


def ljf() -> Composed:
    """``ljf``: longest estimate first."""
    return Composed("ljf", "none")


def ljf_easy() -> Composed:
    """``ljf+easy``."""
    return Composed("ljf", "easy")


def ljf_conservative() -> Composed:
    """``ljf+conservative``."""
    return Composed("ljf", "conservative")


def priority() -> Composed:
    """``priority``: the highest priority first, equal ones by arrival."""
    return Composed("priority", "none")


def priority_easy() -> Composed:
    """``priority+easy``."""
    return Composed("priority", "easy")


def priority_conservative() -> Composed:
    """``priority+conservative``."""
    return Composed("priority", "conservative")


def priority_preempt(*, min_run_s: float = 60.0, backfill: Backfill = "none") -> Composed:
    """``priority+preempt``: running jobs are suspended for the first job that does not fit.

    Args:
        min_run_s: a job that has run for less seconds since its last start is not suspended.
        backfill: who may pass whom.
    """
    return Composed("priority", backfill, preemption=Preemption(min_run_s))


def priority_easy_preempt(*, min_run_s: float = 60.0) -> Composed:
    """``priority+easy+preempt``.

    Args:
        min_run_s: a job that has run for less seconds since its last start is not suspended.
    """
    return priority_preempt(min_run_s=min_run_s, backfill="easy")


def priority_conservative_preempt(*, min_run_s: float = 60.0) -> Composed:
    """``priority+conservative+preempt``.

    Args:
        min_run_s: a job that has run for less seconds since its last start is not suspended.
    """
    return priority_preempt(min_run_s=min_run_s, backfill="conservative")


def dynp(
    *,
    lower: float = 7200.0,
    upper: float = 9000.0,
    threshold: int = 5,
    backfill: Backfill = "conservative",
) -> Composed:
    """``dynp``: changes between sjf, fcfs and ljf by the mean estimate of the waiting jobs.

    Args:
        lower: at or below this mean, in seconds, the shortest job goes first.
        upper: above this mean, in seconds, the longest job goes first.
        threshold: with fewer waiting jobs the policy stays what it is.
        backfill: who may pass whom.
    """
    return Composed(Dynp(lower, upper, threshold), backfill)


def dynp_easy(*, lower: float = 7200.0, upper: float = 9000.0, threshold: int = 5) -> Composed:
    """``dynp+easy``.

    Args:
        lower: at or below this mean, in seconds, the shortest job goes first.
        upper: above this mean, in seconds, the longest job goes first.
        threshold: with fewer waiting jobs the policy stays what it is.
    """
    return Composed(Dynp(lower, upper, threshold), "easy")


def dynp_conservative(
    *, lower: float = 7200.0, upper: float = 9000.0, threshold: int = 5
) -> Composed:
    """``dynp+conservative``, the same as ``dynp``.

    Args:
        lower: at or below this mean, in seconds, the shortest job goes first.
        upper: above this mean, in seconds, the longest job goes first.
        threshold: with fewer waiting jobs the policy stays what it is.
    """
    return Composed(Dynp(lower, upper, threshold), "conservative")

"""The queueing strategies of the papers by name (Streit 2002): compositions of their parts."""

from pliant.strategies.backfill import Backfill
from pliant.strategies.composed import Composed
from pliant.strategies.orders import Dynp


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

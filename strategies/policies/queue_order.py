"""Orders of the queue: fcfs, sjf, ljf, priority, fairshare, and dynP, which changes the order.

Streit 2002, sections 2 and 5. All estimates are those of the users, never true run times. A job
without an estimate counts as longer than any other: it is last under sjf and first under ljf, and
dynP's mean leaves it out. dynP chooses between the first three orders. ``priority`` orders jobs by
the priority that users state. ``fairshare`` orders users by their fair-share factors
(``core/model/fair_share_factor.py``), and the jobs of one user by priority.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from zlib import crc32

from pliant.core.model.fair_share_factor import FairShares
from pliant.core.model.views_and_plans import View, WaitingJob

QueueOrder = Literal["fcfs", "sjf", "ljf", "priority", "fairshare"]

#: The orders between which dynP changes.
DYNP_ORDERS: tuple[QueueOrder, ...] = ("fcfs", "sjf", "ljf")


def in_order(
    policy: QueueOrder, waiting: Sequence[WaitingJob], view: View | None = None
) -> Sequence[WaitingJob]:
    """Return the waiting jobs in the order that a policy demands.

    Args:
        policy: fcfs by (submission, id), sjf by (estimate, submission, id), ljf by (-estimate,
            submission, id), priority by (-priority, submission, id), fairshare by (-factor of the
            account, -factor of the user, submission, id), and the jobs of each user by priority.
        waiting: the jobs by (submission, id), as in ``View.waiting``.
        view: has the usage and the shares for fairshare. Without it all factors are equal.
    """
    if policy == "fcfs":
        return waiting
    if policy == "priority":
        return sorted(waiting, key=lambda job: -job.priority)
    if policy == "fairshare":
        return _by_fair_share(waiting, view)
    # Sorting is stable, even in reverse, so equal estimates stay in order of submission and id.
    return sorted(waiting, key=estimate, reverse=policy == "ljf")


def queue_with(waiting: Sequence[WaitingJob], job: WaitingJob) -> Sequence[WaitingJob]:
    """Return the queue with ``job`` added, sorted by arrival time.

    If the job is already in the queue, the queue is returned unchanged.
    """
    if any(other.id == job.id for other in waiting):
        return waiting
    return sorted([*waiting, job], key=lambda each: (each.arrival, each.id))


def _by_fair_share(waiting: Sequence[WaitingJob], view: View | None) -> list[WaitingJob]:
    """Return the waiting jobs in fair-share order.

    Users choose the priorities of their jobs themselves, so these must not matter between users. A
    user's job of the highest priority takes the place of the job that the user submitted first.
    """
    usage, shares, now = ((), None, 0.0) if view is None else (view.usage, view.shares, view.now)
    standing = FairShares(usage, shares, now)
    places: dict[tuple[str, str], list[int]] = {}
    for place, job in enumerate(waiting):
        places.setdefault((job.account, job.user), []).append(place)
    keys = {user: standing.order(*user) for user in places}
    free = {user: iter(found) for user, found in places.items()}
    line = [
        (keys[job.account, job.user], next(free[job.account, job.user]), job)
        for job in in_order("priority", waiting)
    ]
    return [job for *_, job in sorted(line, key=lambda entry: entry[:2])]


def estimate(job: WaitingJob) -> float:
    """Return the user's estimate in seconds; infinity if there is none."""
    return math.inf if job.estimate_s is None else job.estimate_s


# ---------------------------------------------------------------- dynP


@dataclass(frozen=True, slots=True)
class DynpMemory:
    """The memory of dynP: the present queue order, and for how many seconds each order was used."""

    policy: QueueOrder
    #: When this order came into force.
    since: float
    #: The first submission, from which shares of time are counted.
    first: float
    #: Time under each of ``DYNP_ORDERS`` until ``since``.
    spent: tuple[float, ...] = (0.0, 0.0, 0.0)
    #: A fingerprint of the jobs that were there, see ``_fingerprint``.
    seen: tuple[int, int] = (0, 0)

    def to_memory(self) -> object:
        """Return this memory as the value of ``Plan.memory``, from which the next pass reads it."""
        return ("dynp", self.policy, self.since, self.first, self.spent, self.seen)

    @classmethod
    def from_memory(cls, memory: object) -> "DynpMemory | None":
        """Read ``View.memory``, which may come from JSON; None if it is not dynP's memory."""
        match memory:
            case [
                "dynp",
                "fcfs" | "sjf" | "ljf" as policy,
                float() | int() as since,
                float() | int() as first,
                [
                    float() | int() as fcfs,
                    float() | int() as sjf,
                    float() | int() as ljf,
                ],
                [int() as jobs, int() as numbers],
            ]:
                return cls(policy, since, first, (fcfs, sjf, ljf), (jobs, numbers))
        return None

    def decided(self, policy: QueueOrder, now: float, seen: tuple[int, int]) -> "DynpMemory":
        """Return the memory after a decision for ``policy`` at time ``now``.

        Args:
            policy: the order from now on.
            now: the present time, in seconds since the epoch.
            seen: number and checksum of the jobs for which the decision was made, so that the next
                pass notices whether jobs were submitted or have ended.
        """
        if policy == self.policy:
            return replace(self, seen=seen)
        return DynpMemory(policy, now, self.first, self._spent(now), seen)

    def _spent(self, until: float) -> tuple[float, ...]:
        more = until - self.since
        return tuple(
            spent + (more if policy == self.policy else 0.0)
            for policy, spent in zip(DYNP_ORDERS, self.spent, strict=True)
        )


def policy_shares(memory: object, end: float) -> dict[QueueOrder, float]:
    """Return the share of the time in which each order was used, since the first submission.

    Args:
        memory: ``Plan.memory`` of the last plan of a dynp strategy.
        end: the end of the last job, in seconds since the epoch.

    Returns:
        Three shares that add up to 1; empty if nothing was submitted or no time has passed.
    """
    last = DynpMemory.from_memory(memory)
    if last is None or end <= last.first:
        return {}
    spent = last._spent(end)
    return {policy: s / (end - last.first) for policy, s in zip(DYNP_ORDERS, spent, strict=True)}


@dataclass(frozen=True, slots=True)
class Dynp:
    """The rule of dynP (Streit 5), which chooses an order by the mean estimate of waiting jobs."""

    #: At or below this mean, in seconds, the order is sjf.
    lower: float = 7200.0
    #: Above this mean, in seconds, the order is ljf; between the bounds it is fcfs.
    upper: float = 9000.0
    #: With fewer waiting jobs the order does not change.
    threshold: int = 5

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise ValueError(f"lower {self.lower:g} s is above upper {self.upper:g} s")
        if self.lower < 0 or self.threshold < 1:
            raise ValueError("lower must be at least 0, threshold at least 1")

    def decide(self, view: View) -> DynpMemory | None:
        """Return the memory with the chosen order; None before the first submission.

        The order is chosen again only after a job was submitted or has ended. If jobs have only
        started, it stays, although the mean estimate of the waiting jobs has changed.
        """
        memory = DynpMemory.from_memory(view.memory)
        if memory is None:
            if not view.waiting:
                return None
            memory = DynpMemory("fcfs", view.now, view.now)
        seen = _fingerprint(view)
        if seen == memory.seen:
            return memory
        mean = self._mean(view.waiting)
        policy = memory.policy if mean is None else self.policy(mean)
        return memory.decided(policy, view.now, seen)

    def policy(self, mean: float) -> QueueOrder:
        """Return the order for a mean estimate in seconds."""
        return "sjf" if mean <= self.lower else "fcfs" if mean <= self.upper else "ljf"

    def _mean(self, waiting: Sequence[WaitingJob]) -> float | None:
        if len(waiting) < self.threshold:
            return None
        known = [job.estimate_s for job in waiting if job.estimate_s is not None]
        return math.fsum(known) / len(known) if known else None


def _fingerprint(view: View) -> tuple[int, int]:
    """Return the number of jobs, waiting or running, and a checksum of their numbers.

    It changes when a job is submitted or ends, but not when one starts.
    """
    present = (view.waiting, view.promised, view.running)
    numbers = sorted(job.id for jobs in present for job in jobs)
    return len(numbers), crc32(",".join(map(str, numbers)).encode())

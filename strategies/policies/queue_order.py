"""In which order the queue is walked: fcfs, sjf, ljf, priority, and dynP, which changes them.

Streit 2002, sections 2 and 5. Estimates are the users', never true run times; a job without one
counts as longer than any other: last under sjf, first under ljf, left out of dynP's mean. dynP
changes between the first three; ``priority`` is the order that users state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from zlib import crc32

from pliant.core.model.scheduling import View, WaitingJob

QueueOrder = Literal["fcfs", "sjf", "ljf", "priority"]

#: Those that dynP changes between.
DYNP_ORDERS: tuple[QueueOrder, ...] = ("fcfs", "sjf", "ljf")


def in_order(policy: QueueOrder, waiting: Sequence[WaitingJob]) -> Sequence[WaitingJob]:
    """The queue in the order of a policy.

    Args:
        policy: fcfs by (submission, id), sjf by (estimate, submission, id), ljf by (-estimate,
            submission, id), priority by (-priority, submission, id).
        waiting: by (submission, id), as ``View.waiting`` is.
    """
    if policy == "fcfs":
        return waiting
    if policy == "priority":
        return sorted(waiting, key=lambda job: -job.priority)
    # Sorting is stable, also in reverse: equal estimates stay by submission and id.
    return sorted(waiting, key=estimate, reverse=policy == "ljf")


def estimate(job: WaitingJob) -> float:
    """The user's estimate in seconds; infinite if there is none."""
    return math.inf if job.estimate_s is None else job.estimate_s


# ---------------------------------------------------------------- dynP


@dataclass(frozen=True, slots=True)
class DynpMemory:
    """The policy in force, and how long each was in force before. Times in seconds."""

    policy: QueueOrder
    #: When this policy came into force.
    since: float
    #: The first submission: shares of time count from here.
    first: float
    #: Time under each of ``DYNP_ORDERS`` until ``since``.
    spent: tuple[float, ...] = (0.0, 0.0, 0.0)
    #: What tells a submission or an end from all else: see ``_system``.
    seen: tuple[int, int] = (0, 0)

    def to_memory(self) -> object:
        """As ``Plan.memory``."""
        return ("dynp", self.policy, self.since, self.first, self.spent, self.seen)

    @classmethod
    def from_memory(cls, memory: object) -> "DynpMemory | None":
        """From ``View.memory``, also after a round trip through JSON; None: another's or none."""
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
        """After a decision for ``policy`` at ``now``."""
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
    """The part of the time from the first submission to ``end`` that each policy was in force.

    Args:
        memory: ``Plan.memory`` of the last plan of a dynp strategy.
        end: the last end of a job.

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
    """The decider (Streit 5): the mean estimate of the waiting jobs against two bounds."""

    #: At or below this mean, seconds, the shortest job goes first.
    lower: float = 7200.0
    #: Above this mean, seconds, the longest job goes first; in between, the first that came.
    upper: float = 9000.0
    #: With fewer waiting jobs the policy stays what it is.
    threshold: int = 5

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise ValueError(f"lower {self.lower:g} s is above upper {self.upper:g} s")
        if self.lower < 0 or self.threshold < 1:
            raise ValueError("lower must be at least 0, threshold at least 1")

    def decide(self, view: View) -> DynpMemory | None:
        """What holds from now on; None as long as nothing was ever submitted.

        The policy is weighed when a job was submitted or has ended, not when passes follow each
        other for other reasons: starts would change the mean.
        """
        memory = DynpMemory.from_memory(view.memory)
        if memory is None:
            if not view.waiting:
                return None
            memory = DynpMemory("fcfs", view.now, view.now)
        seen = _system(view)
        if seen == memory.seen:
            return memory
        mean = self._mean(view.waiting)
        policy = memory.policy if mean is None else self.policy(mean)
        return memory.decided(policy, view.now, seen)

    def policy(self, mean: float) -> QueueOrder:
        """The policy for a mean estimate in seconds."""
        return "sjf" if mean <= self.lower else "fcfs" if mean <= self.upper else "ljf"

    def _mean(self, waiting: Sequence[WaitingJob]) -> float | None:
        if len(waiting) < self.threshold:
            return None
        known = [job.estimate_s for job in waiting if job.estimate_s is not None]
        return math.fsum(known) / len(known) if known else None


def _system(view: View) -> tuple[int, int]:
    """How many jobs there are, and a number that stands for which: starts change neither."""
    present = (view.waiting, view.promised, view.running)
    numbers = sorted(job.id for jobs in present for job in jobs)
    return len(numbers), crc32(",".join(map(str, numbers)).encode())

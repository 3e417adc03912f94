"""Claims: when the processors of a placed job are taken from the clusters (KOALA 4.1).

Between its placement and its claim, a job holds no processors. The scheduler only intends them, and
users of a cluster may take them. A cluster whose local manager accepts reservations is claimed when
the job is placed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.core.values.ids import JobId
from pliant.strategies.multicluster.placement_rules import Part


@dataclass(frozen=True, slots=True)
class Claim:
    """The processors that a job will take from the clusters chosen for it. Times are in seconds."""

    job: JobId
    parts: tuple[Part, ...]
    #: When the processors are taken.
    at: float
    #: When the job can start, because all its input files have arrived.
    start: float

    def processors(self) -> dict[str, int]:
        """Return the number of processors by cluster."""
        total: dict[str, int] = {}
        for cluster, processors in self.parts:
            total[cluster] = total.get(cluster, 0) + processors
        return total


def plan_claim(
    job: JobId,
    parts: Sequence[Part],
    now: float,
    *,
    transfer_s: float = 0.0,
    lead_s: float = 0.0,
    reserves: bool = False,
) -> Claim:
    """Return the claim of a newly placed job: which processors it takes in each cluster, and when.

    Args:
        job: the job.
        parts: its parts, each with a cluster and a number of processors.
        now: the present time, in seconds.
        transfer_s: the longest file transfer of a part, in seconds.
        lead_s: seconds before the start of the job at which its processors are claimed.
        reserves: whether the clusters' local managers accept reservations. Then the processors
            are claimed now.
    """
    start = now + transfer_s
    return Claim(job, tuple(parts), now if reserves else max(now, start - lead_s), start)


def lacking(claim: Claim, idle: Mapping[str, int]) -> list[str]:
    """Return the clusters that cannot give a claim its processors, in order of name.

    If there are any, the claim fails as a whole, and nothing is taken from the other clusters. A
    cluster that is not in ``idle`` cannot be reached.
    """
    needed = claim.processors()
    return sorted(name for name, number in needed.items() if idle.get(name, 0) < number)

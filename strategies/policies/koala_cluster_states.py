"""The state of each cluster of a machine. KOALA manages every cluster separately (KOALA 5.3)."""

from dataclasses import dataclass

from pliant.core.model.views_and_plans import PromisedJob, RunningJob, View
from pliant.core.values.processors import ProcessorMap, count, from_indices
from pliant.strategies.policies.koala_malleability import by_start
from pliant.strategies.policies.placement import processors_by_cluster


@dataclass(slots=True)
class ClusterState:
    """One cluster at the beginning of a round, in which KOALA resizes and starts jobs."""

    name: str
    #: Its usable processors.
    part: ProcessorMap
    #: Malleable jobs that can be resized, earliest started first.
    jobs: list[RunningJob]
    #: Whether a shrink is under way. Meanwhile no job grows, and no job shrinks for another one.
    shrinking: bool
    #: Whether a running job may still grow. A round of growth sets this.
    growing: bool
    #: Whether a resize of one of its jobs is under way or offered in this round.
    resizing: bool = False

    def gain(self, job: RunningJob, size: int, smaller: int) -> int:
        """Return how many usable processors a shrink from ``size`` to ``smaller`` frees."""
        return count(from_indices(job.ranks[smaller:size]) & self.part)

    @property
    def surplus(self) -> int:
        """Return how many processors the jobs of the cluster can give together."""
        return sum(self.gain(job, job.size, job.sizes.min) for job in self.jobs)


def cluster_states(view: View) -> list[ClusterState]:
    """Return the state of each cluster in order of name, with its running malleable jobs.

    A job belongs to the cluster of its first rank.
    """
    parts = processors_by_cluster(view.nodes)
    own: dict[str, list[RunningJob]] = {name: [] for name in parts}
    for job in by_start(view.running):
        first = 1 << job.ranks[0]
        home = next((name for name, part in parts.items() if part & first), None)
        if home is not None and job.malleable:
            own[home].append(job)
    return [_cluster_state(name, part, own[name], view.promised) for name, part in parts.items()]


def _cluster_state(
    name: str, part: ProcessorMap, jobs: list[RunningJob], promised: tuple[PromisedJob, ...]
) -> ClusterState:
    moving = [job for job in jobs if job.target != job.size]
    return ClusterState(
        name,
        part,
        [job for job in jobs if job.resizable],
        any(job.target < job.size for job in moving)
        or any(job.processors & part for job in promised),
        bool(moving),
        bool(moving),
    )

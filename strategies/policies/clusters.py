"""The clusters of a machine as KOALA sees them: each is managed on its own (KOALA 5.3)."""

from dataclasses import dataclass

from pliant.core.model.scheduling import PromisedJob, RunningJob, View
from pliant.core.values.processors import ProcessorMap, count, from_indices
from pliant.strategies.policies.growth_policy import by_start
from pliant.strategies.policies.placement import processors_by_cluster


@dataclass(slots=True)
class ClusterState:
    """One cluster at the beginning of a round."""

    name: str
    #: Its usable processors.
    part: ProcessorMap
    #: Malleable jobs that can be offered a resize, earliest started first.
    jobs: list[RunningJob]
    #: Whether a shrink has not come to its end: nobody grows meanwhile, nobody else is shrunk for.
    shrinking: bool
    #: Whether a running job may still grow; set by a round of growth.
    growing: bool
    #: Whether a resize of one of its jobs is under way, or is offered in this round.
    resizing: bool = False

    def gain(self, job: RunningJob, size: int, smaller: int) -> int:
        """Processors that others may have when a job gives its last ranks."""
        return count(from_indices(job.ranks[smaller:size]) & self.part)

    @property
    def surplus(self) -> int:
        """What all jobs together can give."""
        return sum(self.gain(job, job.size, job.sizes.min) for job in self.jobs)


def cluster_states(view: View) -> list[ClusterState]:
    """The clusters in order of name; a running job belongs to that of its coordinator."""
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

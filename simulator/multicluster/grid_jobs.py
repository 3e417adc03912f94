"""Jobs of the scheduler that spans several clusters: as submitted, and their progress."""

from dataclasses import dataclass
from enum import Enum, auto
from math import inf

from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count
from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.workload import SimJob, WorkloadError
from pliant.strategies.multicluster.claiming import Claim
from pliant.strategies.multicluster.placement_rules import Part


@dataclass(frozen=True, slots=True)
class GridJob:
    """A job of one or several components, each of which runs in one cluster.

    Raises:
        WorkloadError: the components do not fit the job. The message names the job.
    """

    job: SimJob
    #: The processors of each component; empty for one component with any size of the job.
    components: tuple[int, ...] = ()
    #: The input files of each component; empty if there are none.
    files: tuple[tuple[str, ...], ...] = ()
    #: How long the application stands still in a resize; None for the time in the settings.
    pause_s: float | None = None

    def __post_init__(self) -> None:
        total, sizes = sum(self.components), self.job.sizes
        if self.components and not (sizes.fixed and sizes.min == total):
            raise WorkloadError(
                f"job {self.job.id}: its components have {total} processors, and its sizes are "
                f"{sizes}: a job with components has one size, their sum"
            )
        if any(component < 1 for component in self.components):
            raise WorkloadError(f"job {self.job.id}: a component needs at least 1 processor")
        number = max(1, len(self.components))
        if self.files and len(self.files) != number:
            raise WorkloadError(
                f"job {self.job.id}: {len(self.files)} lists of files, expected {number}: one for "
                "each component"
            )


class Stage(Enum):
    """The stages of a job between its submission and its end."""

    QUEUED = auto()
    #: It waits for running jobs that shrink for it.
    AWAITING = auto()
    #: It is placed, and its processors will be claimed.
    INTENDED = auto()
    #: Its processors are claimed, and its processes are being started.
    STARTING = auto()
    RUNNING = auto()
    ENDED = auto()


class GridRun:
    """A job from its submission to its end. Times in seconds on the simulated clock.

    ``bits`` are the processors that the scheduler has assigned to the job. Only their number in
    each cluster has a meaning, because clusters do not report which processors they use.
    """

    def __init__(self, spec: GridJob) -> None:
        self.spec = spec
        self.job = spec.job
        self.id = JobId(spec.job.id)
        self.stage = Stage.QUEUED
        #: Raised when its processes are lost or its end changes: older events no longer count.
        self.version = 0
        self.claim: Claim | None = None
        #: The cluster of each component.
        self.parts: tuple[Part, ...] = ()
        #: Processors that it uses, in rank order.
        self.ranks: tuple[int, ...] = ()
        #: All processors that it holds or that are kept for it, with those of open resizes.
        self.bits: ProcessorMap = NONE
        #: Those of ``bits`` that it has really got from its cluster.
        self.held: ProcessorMap = NONE
        #: Its size when the open resize has ended; its size if there is none.
        self.target = 0
        #: Running jobs that have to shrink before it can be claimed.
        self.donors: set[JobId] = set()
        self.start: float | None = None
        self.end = inf
        self.resizes = 0
        self.first_size = 0
        self.largest_size = 0
        #: Processor-seconds that it held until ``_held_since``.
        self.area = 0.0
        #: Processor-seconds that it used as a running program.
        self.used_area = 0.0
        self._work_left = spec.job.work
        #: Its computation continues at this time; earlier than now unless it stands still.
        self._since = 0.0
        self._size_since = 0.0
        self._held_since = 0.0

    @property
    def size(self) -> int:
        """Return the number of processors that the job uses."""
        return len(self.ranks)

    @property
    def sizes(self) -> Sizes:
        """Return the sizes on which the job can run."""
        return self.job.sizes

    def begin(self, ranks: tuple[int, ...], now: float) -> None:
        """Record that the job starts to compute on these processors."""
        self.stage, self.ranks, self.target = Stage.RUNNING, ranks, len(ranks)
        self.start = self._since = self._size_since = now
        self.first_size = self.largest_size = len(ranks)
        self._project()

    def stand_still(self, now: float, until: float) -> None:
        """Record that the job does not compute until the time ``until``, because of a resize."""
        self._advance(now)
        self._since = until
        self._project()

    def change_size(self, ranks: tuple[int, ...], now: float) -> None:
        """Record that the job continues to compute on other processors."""
        self._advance(now)
        self.ranks = ranks
        self.resizes += 1
        self.largest_size = max(self.largest_size, len(ranks))
        self._project()

    def finish(self, now: float) -> None:
        """Record that the job has ended."""
        self._advance(now)
        self.end = now
        self.stage = Stage.ENDED
        self.version += 1

    def hold(self, held: ProcessorMap, now: float) -> None:
        """Record the set of processors that the job has got from its clusters, valid from now on.

        ``held`` replaces the earlier set.
        """
        self.area += count(self.held) * (now - self._held_since)
        self.held, self._held_since = held, now

    def _advance(self, now: float) -> None:
        if now > self._since:
            self._work_left -= (now - self._since) * self.job.speedup(self.size)
            self._since = now
        self.used_area += self.size * (now - self._size_since)
        self._size_since = now

    def _project(self) -> None:
        self.version += 1
        self.end = self._since + max(0.0, self._work_left) / self.job.speedup(self.size)

    @property
    def average_size(self) -> float:
        """Return the mean number of processors that the job used while it ran."""
        assert self.start is not None
        elapsed = self.end - self.start
        return self.used_area / elapsed if elapsed > 0 else float(self.first_size)

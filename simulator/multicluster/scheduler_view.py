"""The clusters as strategies see them, with the idle processors that the scheduler believes in.

The scheduler gets old reports of idle processors only. Each cluster is one node with as many
processors as it has. Jobs of the scheduler occupy some of them. Of the others, as many are free as
the scheduler believes to be idle.
"""

from collections.abc import Iterable, Sequence

from pliant.core.model.views_and_plans import NodeView, PromisedJob, RunningJob, View, WaitingJob
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import NONE, ProcessorMap, count, lowest
from pliant.simulator.inputs.settings import Cluster
from pliant.simulator.multicluster.grid_jobs import GridRun, Stage
from pliant.strategies.multicluster.believed_capacity import BelievedCapacity


class SchedulerView:
    """Makes views of the clusters for strategies.

    The processors are numbered in the order in which the clusters are given.
    """

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        first = 0
        #: The processors of each cluster.
        self.parts: dict[str, ProcessorMap] = {}
        for cluster in clusters:
            self.parts[cluster.name] = ((1 << cluster.processors) - 1) << first
            first += cluster.processors
        self._nodes = tuple(
            NodeView(NodeName(name), name, part) for name, part in self.parts.items()
        )
        self._total = first

    def by_cluster(self, processors: ProcessorMap) -> dict[str, int]:
        """Return the number of processors in each cluster, without clusters that have none."""
        return {
            name: number
            for name, part in self.parts.items()
            if (number := count(processors & part))
        }

    def make(
        self,
        now: float,
        waiting: Iterable[GridRun],
        runs: Iterable[GridRun],
        believed: BelievedCapacity,
    ) -> View:
        """Return a view.

        Args:
            now: the present time.
            waiting: the jobs to place, in the order in which they are tried.
            runs: all jobs that hold processors, or for which processors are kept.
            believed: the idle processors of each cluster.
        """
        running, promised, occupied = [], [], NONE
        for run in runs:
            occupied |= run.bits | run.held
            if run.stage is Stage.AWAITING:
                promised.append(_promised(run))
            else:
                running.append(_running(run, now))
        free = NONE
        for name, part in self.parts.items():
            spare = part & ~occupied
            free |= lowest(spare, min(believed.idle(name), count(spare)))
        jobs = tuple(_waiting(run) for run in waiting)
        return View(now, self._nodes, jobs, tuple(promised), tuple(running), free, self._total)


def _waiting(run: GridRun) -> WaitingJob:
    return WaitingJob(
        run.id,
        run.job.submit,
        run.sizes,
        requested=run.job.requested,
        speedup=run.job.speedup,
        components=run.spec.components,
    )


def _promised(run: GridRun) -> PromisedJob:
    return PromisedJob(run.id, run.job.submit, run.bits, run.sizes, frozenset(run.donors))


def _running(run: GridRun, now: float) -> RunningJob:
    """Return the view of a job that holds processors, or for which processors are kept.

    A job that has ended counts as leaving until its clusters have its processors back.
    """
    return RunningJob(
        id=run.id,
        arrival=run.job.submit,
        started=now if run.start is None else run.start,
        ranks=run.ranks,
        held=run.bits | run.held,
        sizes=run.sizes,
        resizable=run.stage is Stage.RUNNING and run.job.malleable and run.target == run.size,
        malleable=run.job.malleable and run.stage is not Stage.ENDED,
        target=run.size if run.stage is Stage.ENDED else run.target,
        leaving=run.stage is Stage.ENDED,
    )

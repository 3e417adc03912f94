"""Shared state of the simulation of several clusters: clock, clusters, jobs, counters."""

from collections.abc import Callable, Iterable
from random import Random

from pliant.core.events import Event
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count
from pliant.simulator.multicluster.grid_jobs import GridRun, Stage
from pliant.simulator.multicluster.grid_metrics import GridMetrics
from pliant.simulator.multicluster.scheduler_view import SchedulerView
from pliant.simulator.multicluster.settings import LocalJob, MulticlusterSettings
from pliant.simulator.multicluster.simulated_cluster import SimulatedCluster
from pliant.simulator.run.event_queue import END, OTHER, EventQueue
from pliant.strategies.multicluster.believed_capacity import BelievedCapacity


class GridState:
    """The clusters and the jobs. Only this class gives processors to jobs and takes them back."""

    def __init__(self, settings: MulticlusterSettings) -> None:
        self.settings = settings
        self.events = EventQueue()
        self.clusters = {
            each.name: SimulatedCluster(each.name, each.processors) for each in settings.clusters
        }
        self.views = SchedulerView(settings.clusters)
        self.believed = BelievedCapacity()
        #: Jobs that hold processors, or for which processors are kept, by id.
        self.active: dict[JobId, GridRun] = {}
        self.metrics = GridMetrics()
        #: How many jobs have not ended, or still hold processors.
        self.open_jobs = 0
        #: Is called with a job that has given processors back.
        self.on_release: Callable[[GridRun], None] = lambda _: None
        self._rngs: dict[JobId, Random] = {}

    @property
    def now(self) -> float:
        """Return the simulated time in seconds."""
        return self.events.now

    def later(self, delay: float, action: Callable[[], None], kind: int = OTHER) -> None:
        """Call a function after a delay, in simulated seconds.

        Args:
            delay: the delay.
            action: the function.
            kind: orders calls at the same time; the lowest goes first.
        """
        self.at(self.events.now + delay, action, kind)

    def at(self, time: float, action: Callable[[], None], kind: int = OTHER) -> None:
        """Call a function at a simulated time, given in seconds.

        Args:
            time: the time.
            action: the function.
            kind: orders calls at the same time; the lowest goes first.
        """
        self.events.schedule(time, _call, action, kind)

    def vary_start_time(self, run: GridRun, seconds: float) -> float:
        """Return a random number of seconds in which a cluster's local manager starts processes.

        It differs from ``seconds`` by at most the fraction ``spread`` of the settings. The random
        numbers of a job do not depend on other jobs.

        Args:
            run: the job.
            seconds: the mean time that a cluster's local manager takes.
        """
        spread = self.settings.latencies.spread
        if not (seconds and spread):
            return seconds
        return seconds * self._rng(run).uniform(1 - spread, 1 + spread)

    def safe_point(self, run: GridRun) -> float:
        """Return random seconds until a running application reaches its safe point."""
        longest = self.settings.latencies.safe_point_s
        return self._rng(run).uniform(0.0, longest) if longest else 0.0

    def _rng(self, run: GridRun) -> Random:
        return self._rngs.setdefault(run.id, Random(f"{self.settings.seed}:stubs:{run.id}"))

    # ---------------------------------------------------------------- processors

    def take(self, run: GridRun, processors: ProcessorMap) -> bool:
        """Claim processors from their clusters for a job that the scheduler has assigned them to.

        Returns:
            Whether every cluster had enough idle processors. If not, nothing is claimed.
        """
        parts = self.views.by_cluster(processors)
        if any(self.clusters[name].idle < number for name, number in parts.items()):
            return False
        for name, number in parts.items():
            self.clusters[name].take(number)
        run.hold(run.held | processors, self.now)
        self.metrics.used(self.now, count(processors))
        return True

    def release(self, run: GridRun, processors: ProcessorMap) -> None:
        """Give processors of a job back to their clusters."""
        processors &= run.held
        for name, number in self.views.by_cluster(processors).items():
            self.clusters[name].give_back(number)
        self._drop(run, processors)
        for name in self.views.by_cluster(processors):
            self.start_local_jobs(self.clusters[name])
        self.on_release(run)

    def lose(self, cluster: str) -> list[GridRun]:
        """Take the processors of a failed cluster from jobs; return the jobs that had some."""
        part = self.views.parts[cluster]
        losers = [run for run in self.active.values() if run.held & part]
        for run in losers:
            self._drop(run, run.held & part)
        return losers

    def _drop(self, run: GridRun, processors: ProcessorMap) -> None:
        run.hold(run.held & ~processors, self.now)
        run.bits &= ~processors
        self.metrics.used(self.now, -count(processors))
        if run.stage is Stage.ENDED and not run.held and run.id in self.active:
            del self.active[run.id]
            self.open_jobs -= 1
            self.metrics.released(run)

    def committed(self) -> dict[str, int]:
        """Return the number of processors of each cluster that jobs are still to claim."""
        kept, held = NONE, NONE
        for run in self.active.values():
            kept |= run.bits
            held |= run.held
        return self.views.by_cluster(kept & ~held)

    # ---------------------------------------------------------------- jobs

    def schedule_end(self, run: GridRun) -> None:
        """Let a running job end when its work is done."""
        version = run.version

        def end() -> None:
            if run.version == version:
                self.end(run, JobState.COMPLETED)

        self.at(run.end, end, END)

    def end(self, run: GridRun, state: JobState, reason: str = "") -> None:
        """End a job. It gives its processors back when its processes have exited."""
        if run.start is None:
            run.stage, run.end = Stage.ENDED, self.now
        else:
            run.finish(self.now)
        run.bits = run.held
        self.metrics.ended(run, state, reason)
        if run.held:
            self.later(self.settings.latencies.release_s, lambda: self.release(run, run.held))
        else:
            self.active.pop(run.id, None)
            self.open_jobs -= 1
            self.metrics.released(run)
            self.on_release(run)

    # ---------------------------------------------------------------- local users

    def start_local_jobs(self, cluster: SimulatedCluster) -> None:
        """Start the local jobs of a cluster that now fit."""
        for job in cluster.start_local_jobs(self.now):
            self.later(job.run_s, self._local_end(cluster, job), END)

    def _local_end(self, cluster: SimulatedCluster, job: LocalJob) -> Callable[[], None]:
        generation = cluster.generation

        def end() -> None:
            if cluster.generation == generation:
                cluster.give_back(job.processors)
                self.start_local_jobs(cluster)

        return end


def _call(action: Callable[[], None]) -> Iterable[Event]:
    action()
    return ()

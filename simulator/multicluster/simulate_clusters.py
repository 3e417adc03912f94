"""Run jobs on several clusters with a scheduler that places, claims, grows and shrinks them.

In an instant, ends of jobs come first, then submissions, then everything else. Without a polling
interval, a round of the scheduler follows each event, on exact information. Then the results are
those of ``simulate`` with the same strategy.
"""

from collections.abc import Iterable, Iterator, Mapping

from pliant.core.events import Event
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.simulator.inputs.simulation_errors import NoProgressError
from pliant.simulator.inputs.workload import WorkloadError
from pliant.simulator.multicluster.claims import Claims
from pliant.simulator.multicluster.grid_jobs import GridJob, GridRun, Stage
from pliant.simulator.multicluster.grid_state import GridState
from pliant.simulator.multicluster.growth_and_shrinking import Adaptations
from pliant.simulator.multicluster.settings import LocalJob, MulticlusterSettings, Outage
from pliant.simulator.multicluster.simulated_cluster import SimulatedCluster, local_jobs
from pliant.simulator.run.event_queue import ARRIVAL, OTHER
from pliant.simulator.run.result import Result
from pliant.strategies.multicluster.file_transfers import FilesError
from pliant.strategies.multicluster.placement_queue import PlacementQueue
from pliant.strategies.multicluster.placement_rules import TransferTimes, place_components
from pliant.strategies.policies.koala_malleability import Egs, Fpsma
from pliant.strategies.policies.koala_precedence import Round

#: Rounds in one instant, and rounds without any change, after which the simulation stops.
MAX_ROUNDS = 10_000
MAX_IDLE_ROUNDS = 200_000
#: Polls come after everything else that happens in an instant.
POLL = OTHER + 1
_NEVER = -float("inf")


def simulate_clusters(jobs: Iterable[GridJob], settings: MulticlusterSettings) -> Result:
    """Run jobs on several clusters, and return metrics and records.

    Args:
        jobs: the jobs to submit, in any order, with unique numbers.
        settings: everything else.

    Raises:
        WorkloadError: two jobs have the same number, or a job names an unknown file.
        NoProgressError: jobs wait that will never start.
    """
    return _Simulation(
        sorted(jobs, key=lambda each: (each.job.submit, each.job.id)), settings
    ).run()


class _Simulation:
    def __init__(self, jobs: list[GridJob], settings: MulticlusterSettings) -> None:
        self._settings = settings
        self._state = GridState(settings)
        self._queue = PlacementQueue(settings.max_tries)
        self._claims = Claims(self._state, self._queue)
        self._state.on_release = self._claims.donor_released
        self._adaptations = Adaptations(self._state)
        self._policy = Fpsma() if settings.policy == "fpsma" else Egs()
        self._runs: dict[JobId, GridRun] = {}
        self._transfers: dict[JobId, TransferTimes] = {}
        self._submits = [each.job.submit for each in jobs]
        for spec in jobs:
            self._add(spec)
        #: When the information provider reported last.
        self._renewed = _NEVER
        #: Rounds since a job was submitted, started, resized or ended, and the number of these.
        self._idle_rounds, self._changes = 0, 0

    def _add(self, spec: GridJob) -> None:
        run = GridRun(spec)
        if run.id in self._runs:
            raise WorkloadError(f"job {run.id} occurs twice: each job needs a number of its own")
        self._runs[run.id] = run
        if spec.files and self._settings.files is not None:
            try:
                self._transfers[run.id] = self._settings.files.transfers(spec.files)
            except FilesError as error:
                raise WorkloadError(f"job {run.id}: {error}") from None
        self._state.open_jobs += 1
        self._state.at(spec.job.submit, lambda: self._submit(run), ARRIVAL)

    # ---------------------------------------------------------------- the loop

    def run(self) -> Result:
        """Run until all jobs have given their processors back; return metrics and records."""
        state = self._state
        window = min(self._submits, default=0.0), max(self._submits, default=0.0)
        for name, cluster in state.clusters.items():
            cluster.waits.first, cluster.waits.last = window
            self._next_local(
                cluster, local_jobs(self._settings.local_users, cluster, self._settings.seed)
            )
            for given, listed in self._settings.local_jobs:
                if given == name:
                    self._next_local(cluster, iter(sorted(listed, key=lambda job: job.submit)))
        for outage in self._settings.outages:
            self._plan_outage(outage)
        if self._settings.poll_s:
            state.at(window[0], self._poll, POLL)
        rounds, last = 0, _NEVER
        batch: list[Event] = []
        while state.open_jobs:
            if not state.events.advance_to_next():
                raise NoProgressError(self._stuck())
            state.events.collect_due(batch)
            if not self._settings.poll_s and state.open_jobs:
                self._manage()
            rounds = rounds + 1 if state.now == last else 0
            last = state.now
            if rounds > MAX_ROUNDS or self._idle_rounds > MAX_IDLE_ROUNDS:
                raise NoProgressError(self._stuck())
        return self._result()

    def _result(self) -> Result:
        jobs, total = 0, 0.0
        for cluster in self._state.clusters.values():
            cluster.close(self._state.now)
            jobs += cluster.waits.jobs
            total += cluster.waits.total_s
        metrics = self._state.metrics
        return Result(metrics.summary(self._submits, jobs, total), metrics.records)

    def _stuck(self) -> str:
        waiting = ", ".join(map(str, list(self._queue)[:5]))
        return f"jobs wait at {self._state.now:g} s and nothing happens any more: {waiting}"

    # ---------------------------------------------------------------- rounds

    def _poll(self) -> None:
        self._manage()
        if self._state.open_jobs:
            self._state.later(self._settings.poll_s, self._poll, POLL)

    def _manage(self) -> None:
        """Run one round of the scheduler over all clusters and the queue."""
        state = self._state
        if state.now >= self._renewed + self._settings.snapshot_s:
            self._renew()
        done = self._round(self._runs[job] for job in self._queue)
        done.run(self._settings.precedence)
        self._carry_out(done)

    def _renew(self) -> None:
        state = self._state
        self._renewed = state.now
        idle = {name: each.idle for name, each in state.clusters.items() if each.is_up}
        state.believed.renew(idle, state.committed())

    def _round(self, waiting: Iterable[GridRun]) -> Round:
        state = self._state
        view = state.views.make(state.now, waiting, state.active.values(), state.believed)
        return Round(view, self._policy, self._settings.limits, self._transfers)

    def _carry_out(self, done: Round) -> None:
        """Carry out the decisions of a round."""
        state, placer = self._state, done.placer
        state.metrics.counts["offers"] += done.offers
        free = done.view.free
        for offer in placer.shrinks:
            self._adaptations.shrink(self._runs[offer.job], offer.processors)
        donors = {offer.job: self._runs[offer.job].held for offer in placer.shrinks}
        for start in placer.starts:
            self._hand_out(start.processors & free)
            givers = [job for job, held in donors.items() if held & start.processors]
            parts = done.parts[start.job]
            self._claims.place(self._runs[start.job], parts, start.processors, givers)
        for offer in placer.expands:
            run = self._runs[offer.job]
            added = offer.processors & free
            self._hand_out(added)
            self._adaptations.grow(run, added)
        for job in done.failed:
            self._claims.count_failure(self._runs[job])
        changes = state.metrics.changes()
        self._idle_rounds = self._idle_rounds + 1 if changes == self._changes else 0
        self._changes = changes

    def _hand_out(self, processors: int) -> None:
        for cluster, number in self._state.views.by_cluster(processors).items():
            self._state.believed.hand_out(cluster, number)

    # ---------------------------------------------------------------- submissions

    def _submit(self, run: GridRun) -> None:
        self._state.metrics.submitted += 1
        if reason := self._never_fits(run):
            self._state.end(run, JobState.REJECTED, reason)
            return
        self._queue.append(run.id)
        if not self._settings.poll_s:
            return
        if self._renewed == _NEVER:
            self._renew()
        done = self._round([run])
        done.place_only(self._settings.precedence)
        self._carry_out(done)

    def _never_fits(self, run: GridRun) -> str:
        """Return why a job cannot run even if all clusters are idle; empty if it can."""
        sizes: Mapping[str, int] = {c.name: c.processors for c in self._settings.clusters}
        rule = self._settings.limits.placement
        components = run.spec.components or (run.sizes.min,)
        rule = "cm" if rule != "fcm" or not run.spec.components else "fcm"
        if place_components(rule, components, sizes) is not None:
            return ""
        widest = max(components)
        if rule == "cm" and widest > self._settings.largest:
            return f"needs {widest} processors, the largest cluster has {self._settings.largest}"
        return f"needs {sum(components)} processors, which all clusters together cannot give"

    # ---------------------------------------------------------------- the clusters' own events

    def _next_local(self, cluster: SimulatedCluster, stream: Iterator[LocalJob]) -> None:
        job = next(stream, None)
        if job is None:
            return

        def submit() -> None:
            cluster.submit(job)
            self._state.start_local_jobs(cluster)
            self._next_local(cluster, stream)

        self._state.at(job.submit, submit, ARRIVAL)

    def _plan_outage(self, outage: Outage) -> None:
        state, cluster = self._state, self._state.clusters[outage.cluster]

        def begin() -> None:
            losers = state.lose(outage.cluster)
            cluster.fail()
            for run in losers:
                if run.stage is not Stage.ENDED:
                    state.end(run, JobState.FAILED, f"cluster {outage.cluster} was lost")
                state.on_release(run)

        state.at(outage.start, begin)
        state.at(outage.end, cluster.recover)

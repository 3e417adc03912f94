"""Placed jobs until they run: waiting for donors, claiming, starting (KOALA 4.1)."""

from collections.abc import Callable, Collection
from math import isinf

from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count, indices
from pliant.simulator.multicluster.grid_jobs import GridRun, Stage
from pliant.simulator.multicluster.grid_state import GridState
from pliant.strategies.multicluster.claiming import lacking, plan_claim
from pliant.strategies.multicluster.placement_queue import PlacementQueue
from pliant.strategies.multicluster.placement_rules import Part


class Claims:
    """Gets processors from the clusters for jobs that the scheduler has placed there.

    A job gets them for all of its components or for none.
    """

    def __init__(self, state: GridState, queue: PlacementQueue) -> None:
        self._state = state
        self._queue = queue

    def place(
        self,
        run: GridRun,
        parts: Collection[Part],
        processors: ProcessorMap,
        donors: Collection[JobId],
    ) -> None:
        """Take a job from the queue, and keep processors of the clusters for it.

        Later, the job claims these processors, which means that it gets them from the clusters.
        The time of the claim is planned at once or, if running jobs must shrink for this one (its
        donors), as soon as the last of them has given up its processors.

        Args:
            run: the job.
            parts: the cluster of each component.
            processors: the processors, some of which its donors may still hold.
            donors: the running jobs that shrink for it.
        """
        self._queue.remove(run.id)
        self._state.active[run.id] = run
        run.parts = tuple(parts)
        run.bits, run.ranks = processors, tuple(indices(processors))
        run.target = run.size
        run.donors = set(donors)
        run.stage = Stage.AWAITING
        if not donors:
            self._plan(run)

    def donor_released(self, donor: GridRun) -> None:
        """Plan the claims of jobs that waited only for this donor to give up its processors.

        A donor is a running job that shrinks so that another job can start.
        """
        for run in list(self._state.active.values()):
            is_waiting = run.stage is Stage.AWAITING and donor.id in run.donors
            if is_waiting and not run.bits & donor.held:
                run.donors.discard(donor.id)
                if not run.donors:
                    self._plan(run)

    def fail(self, run: GridRun) -> None:
        """Put a placed job back to the tail of the queue, and count the failed try."""
        run.bits, run.ranks, run.target = NONE, (), 0
        run.stage = Stage.QUEUED
        run.version += 1
        self._state.active.pop(run.id, None)
        self._queue.append(run.id)
        self.count_failure(run)

    def count_failure(self, run: GridRun) -> None:
        """Count a failed try to place a job or to claim its processors.

        If it is one more than the scheduler allows (``max_tries``), reject the job.
        """
        self._state.metrics.counts["failed_tries"] += 1
        if self._queue.count_failure(run.id):
            tries = self._queue.tries(run.id)
            self._queue.forget(run.id)
            self._state.end(run, JobState.REJECTED, f"placement tries: {tries} failed")

    def _plan(self, run: GridRun) -> None:
        settings = self._state.settings
        transfer = self._transfer_s(run)
        if isinf(transfer):
            self.fail(run)
            return
        claim = plan_claim(
            run.id,
            run.parts,
            self._state.now,
            transfer_s=transfer,
            lead_s=settings.lead_s,
            reserves=settings.reservations,
        )
        run.claim, run.stage = claim, Stage.INTENDED
        self._state.at(claim.at, self._unless_outdated(run, self._claim))

    def _transfer_s(self, run: GridRun) -> float:
        """Return the seconds of the longest file transfer of a job's components; 0 if none."""
        files = self._state.settings.files
        if files is None or not run.spec.files:
            return 0.0
        # A job that was split by the idle processors of clusters needs all its files everywhere.
        lists = run.spec.files
        if len(lists) != len(run.parts):
            lists = (tuple(name for each in lists for name in each),) * len(run.parts)
        return max(
            files.seconds(names, part.cluster) for names, part in zip(lists, run.parts, strict=True)
        )

    def _claim(self, run: GridRun) -> None:
        assert run.claim is not None
        state = self._state
        idle = {name: each.idle for name, each in state.clusters.items() if each.is_up}
        if lacking(run.claim, idle):
            state.metrics.counts["failed_claims"] += 1
            self.fail(run)
            return
        taken = state.take(run, run.bits)
        assert taken, "a claim without lacking processors succeeds"
        run.stage = Stage.STARTING
        first = state.settings.latencies.first_stub_s
        ready = max(state.vary_start_time(run, first) for _ in range(count(run.bits)))
        state.at(max(run.claim.start, state.now + ready), self._unless_outdated(run, self._begin))

    def _begin(self, run: GridRun) -> None:
        self._queue.forget(run.id)
        run.begin(run.ranks, self._state.now)
        self._state.schedule_end(run)

    def _unless_outdated(
        self, run: GridRun, action: Callable[[GridRun], None]
    ) -> Callable[[], None]:
        """Return a function that calls ``action``, unless the job has failed or ended by then."""
        version = run.version

        def call() -> None:
            if run.version == version and run.stage is not Stage.ENDED:
                action(run)

        return call

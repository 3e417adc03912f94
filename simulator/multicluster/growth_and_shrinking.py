"""Growth and shrinking of running jobs with the time that they take (KOALA 5.1).

A job grows by stubs: processes of one processor each, which the local manager starts one after the
other while the application computes. A stub that finds no idle processor is lost. When no stub is
still starting, the application is notified of all running stubs. It takes as many of them as its
sizes allow, and the others end. In a shrink, the application gives up processes and continues. Only
then are the processors returned to the cluster.
"""

from dataclasses import dataclass

from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices, indices, lowest
from pliant.simulator.multicluster.grid_jobs import GridRun, Stage
from pliant.simulator.multicluster.grid_state import GridState


@dataclass(slots=True)
class _Growth:
    """A growth in progress; its stubs (processes of one processor each) are being started."""

    run: GridRun
    #: Processors for which no stub has been submitted.
    pending: list[int]
    #: Stubs that were submitted and do not run yet.
    outstanding: int = 0
    #: Processors of stubs that hold one.
    got: ProcessorMap = NONE


class Adaptations:
    """Carries out the resizes that the scheduler orders."""

    def __init__(self, state: GridState) -> None:
        self._state = state

    # ---------------------------------------------------------------- growth

    def grow(self, run: GridRun, added: ProcessorMap) -> None:
        """Start to grow a job by the given processors, which are kept for it."""
        run.bits |= added
        run.target = run.size + count(added)
        self._submit(_Growth(run, list(indices(added))))

    def _submit(self, growth: _Growth) -> None:
        """Submit the next stub (a process of one processor) of a growth to its cluster."""
        state, run = self._state, growth.run
        if run.stage is not Stage.RUNNING:
            return
        one = 1 << growth.pending.pop(0)
        latencies = state.settings.latencies
        state.metrics.counts["stubs"] += 1
        if state.take(run, one):
            growth.got |= one
            growth.outstanding += 1
            delay = state.vary_start_time(run, latencies.growth_stub_s)
            state.later(delay, lambda: self._active(growth))
        else:
            run.bits &= ~one
            state.metrics.counts["lost_stubs"] += 1
        if growth.pending:
            gap = state.vary_start_time(run, latencies.stub_gap_s)
            state.later(gap, lambda: self._submit(growth))
        elif not growth.outstanding:
            self._hear(growth)

    def _active(self, growth: _Growth) -> None:
        """Record that one of the growth's stubs (processes of one processor) has started.

        If no other stub is still to start, notify the application of all of them.
        """
        growth.outstanding -= 1
        if not growth.outstanding and not growth.pending:
            self._hear(growth)

    def _hear(self, growth: _Growth) -> None:
        """Notify the application that the new processes of its growth run.

        It uses them from its next safe point on.
        """
        self._state.later(self._state.safe_point(growth.run), lambda: self._take(growth))

    def _take(self, growth: _Growth) -> None:
        state, run = self._state, growth.run
        if run.stage is not Stage.RUNNING:
            return
        size = run.sizes.largest_at_most(run.size + count(growth.got))
        used = lowest(growth.got, max(0, size - run.size))
        surplus = growth.got & ~used
        if surplus:
            state.later(state.settings.latencies.release_s, lambda: state.release(run, surplus))
        run.target = run.size + count(used)
        if used:
            self._pause(run, (*run.ranks, *indices(used)), NONE)

    # ---------------------------------------------------------------- shrinking

    def shrink(self, run: GridRun, kept: ProcessorMap) -> None:
        """Let a job give up all its processors except ``kept``, at its next safe point."""
        run.target = count(kept)
        given = from_indices(run.ranks) & ~kept
        ranks = tuple(rank for rank in run.ranks if kept >> rank & 1)

        def begin() -> None:
            if run.stage is Stage.RUNNING:
                self._pause(run, ranks, given)

        self._state.later(self._state.safe_point(run), begin)

    # ---------------------------------------------------------------- the resize

    def _pause(self, run: GridRun, ranks: tuple[int, ...], given: ProcessorMap) -> None:
        """Stop an application for the time of a resize; then let it continue on ``ranks``.

        The processors ``given`` are returned to their clusters afterwards.
        """
        state = self._state
        own = run.spec.pause_s
        pause = state.settings.latencies.pause_s if own is None else own
        run.stand_still(state.now, state.now + pause)
        state.schedule_end(run)

        def resume() -> None:
            if run.stage is not Stage.RUNNING:
                return
            state.metrics.operation(state.now, grows=not given)
            run.change_size(ranks, state.now)
            state.schedule_end(run)
            if given:
                state.later(state.settings.latencies.release_s, lambda: state.release(run, given))

        state.later(pause, resume)

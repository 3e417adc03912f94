"""The timers that the core sets, on the simulated clock.

Most timers of a simulation cannot have an effect: a rigid job ends before its limit, and no node or
job answers late. Such timers are not scheduled, because each one would cost a call of the core.
"""

import math
from collections.abc import Iterable, Mapping

from pliant.core import Core
from pliant.core.commands import SetTimer
from pliant.core.events import Event, TimerFired
from pliant.core.model.timers import Timer, TimerKind
from pliant.simulator.run.event_queue import EventQueue
from pliant.simulator.run.job_run import Run


class CoreTimers:
    """Schedules the core's timers and decides, when one is due, whether it still applies.

    Args:
        queue: the clock and the queue.
        core: has the time at which the strategy is to be woken.
        runs: the jobs that hold processors, by number.
        refusals_expire: whether a job that refused an offer is asked again after a fixed time. If
            not, it is asked again at the next event, for which no timer is needed.
    """

    def __init__(
        self, queue: EventQueue, core: Core, runs: Mapping[int, Run], *, refusals_expire: bool
    ) -> None:
        self._queue = queue
        self._core = core
        self._runs = runs
        self._refusals_expire = refusals_expire
        #: Times at which the strategy is already going to be woken.
        self._wakes: set[float] = set()

    def set_timer(self, command: SetTimer) -> None:
        """Schedule a timer of the core. Timers without an effect in a simulation are ignored."""
        timer, at, queue = command.timer, command.at, self._queue
        kind = timer.kind
        if at == math.inf or (kind is TimerKind.QUIET and not self._refusals_expire):
            return
        if kind is TimerKind.WAKE:
            if at in self._wakes:
                return
            self._wakes.add(at)
        elif kind in (TimerKind.ESTIMATE, TimerKind.LIMIT):
            run = self._runs.get(timer.job)
            fixed = run is not None and not (run.job.malleable or run.job.phases)
            if run is None or (fixed and at >= run.end):
                return
            if kind is TimerKind.ESTIMATE:
                # The core sets this timer again at each resize. Pauses of the job are known to the
                # run only, and only the most recent timer takes all of them into account.
                over = at + run.estimate_grace(queue.now)
                changes = run.resizes if run.job.phases else run.version
                queue.schedule(max(over, queue.now), self._estimate_over, (timer, run, changes, at))
                return
        queue.schedule(max(at, queue.now), self._fire, timer)

    def _fire(self, timer: Timer) -> Iterable[Event]:
        if timer.kind is TimerKind.WAKE:
            self._wakes.discard(self._queue.moment)
            wanted = self._core.state.wake_at
            if wanted is None or wanted > self._queue.moment:
                return ()
        else:
            run = self._runs.get(timer.job)
            if run is None or run.ended or run.number != timer.run:
                return ()
        return (TimerFired(timer),)

    def _estimate_over(self, argument: tuple[Timer, Run, int, float]) -> Iterable[Event]:
        """Return the event that a job has reached its estimate.

        No event is returned if the job has been resized or has ended since the timer was set. If an
        evolving job has stood still meanwhile, the timer is set again for the later time.

        Args:
            argument: the timer, the job's run, the number of the run's changes when the timer was
                set, and the time at which the estimate is reached.
        """
        timer, run, changes, at = argument
        if not run.job.phases:
            return (TimerFired(timer),) if run.version == changes else ()
        if run.ended or run.resizes != changes:
            return ()
        # An evolving job may have stood still since the timer was set, and that time does not
        # count. If so, the estimate is reached later.
        over = at + run.estimate_grace(self._queue.moment)
        if over <= self._queue.moment:
            return (TimerFired(timer),)
        self._queue.schedule(over, self._estimate_over, argument)
        return ()

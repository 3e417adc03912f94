"""The core: events in, commands out; the same for daemon and simulator. No I/O, clock, threads."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pliant.core import events
from pliant.core.commands import Command
from pliant.core.handlers import (
    applications,
    coordination,
    drain,
    failed_starts,
    measured_speeds,
    negotiation,
    planning,
    recovery,
    size_requests,
    stuck_processes,
    submission,
    suspension,
)
from pliant.core.handlers import nodes as node_handlers
from pliant.core.model.jobs import Job
from pliant.core.model.nodes import Node
from pliant.core.model.timers import TimerKind
from pliant.core.state.invariants import check
from pliant.core.state.state import State
from pliant.core.transitions import (
    fencing,
    job_end,
    leaving_ranks,
    node_registry,
    resize_steps,
    resize_transaction,
)
from pliant.core.values.ids import CycleId, JobId, NodeName
from pliant.core.values.limits import Limits
from pliant.core.values.negotiation_policy import NegotiationPolicy

Handler = Callable[[State, Any], None]

#: Timers that concern a job as a whole.
_JOB_TIMERS: dict[TimerKind, Callable[[State, Job], None]] = {
    TimerKind.START: stuck_processes.start_over,
    TimerKind.END: stuck_processes.end_over,
    TimerKind.STRAGGLERS: stuck_processes.stragglers_over,
    TimerKind.LEAVERS: leaving_ranks.time_over,
    TimerKind.REQUEST: size_requests.deadline_over,
}

#: Which room of the house deals with which event.
HANDLERS: dict[type, Handler] = {
    events.JobSubmitted: submission.submitted,
    events.JobCancelled: submission.cancelled,
    events.JobHeld: submission.held,
    events.JobReleased: submission.released,
    events.PriorityChanged: submission.priority_changed,
    events.JobSuspended: suspension.requested,
    events.JobResumed: suspension.resumed,
    events.JobRequeued: suspension.requeued,
    events.ResizeRequested: resize_steps.requested,
    events.NodeRegistered: node_handlers.registered,
    events.NodeSuspected: node_handlers.suspected,
    events.NodeRecovered: node_handlers.recovered,
    events.NodeLost: node_handlers.lost,
    events.NodeDrained: node_handlers.drained,
    events.NodeResumed: node_handlers.resumed,
    events.NodeAble: node_handlers.able,
    events.NodeRemoved: node_registry.removed,
    events.WorldReady: node_handlers.started,
    events.ProcessesExited: failed_starts.exited,
    events.ApplicationRegistered: applications.registered,
    events.ApplicationLeft: applications.left,
    events.StandbyReady: resize_steps.standby_ready,
    events.OfferAnswered: negotiation.answered,
    events.SizesRequested: size_requests.requested,
    events.RequestCancelled: size_requests.cancelled,
    events.SpeedMeasured: measured_speeds.measured,
    events.ResizeBegun: resize_steps.begun,
    events.ResizeDecided: resize_steps.decided,
    events.ResizeWithdrawn: resize_steps.withdrawn,
    events.SaveReported: suspension.reported,
    events.SuspensionHeld: suspension.held,
}


class Core:
    """The whole behaviour as a state machine."""

    def __init__(
        self,
        strategy: str = "equipartition",
        limits: Limits | None = None,
        *,
        policy: NegotiationPolicy | None = None,
        silent: bool = False,
        resources: Mapping[str, int] | None = None,
    ) -> None:
        """Begin empty.

        Args:
            strategy: its name, for reasons and history.
            limits: how long the core waits for others.
            policy: how talks converge.
            silent: nothing is stored, and only faults of plans are noted.
            resources: how much the cluster has of each named resource.
        """
        self._state = State(strategy, limits or Limits(), policy or NegotiationPolicy(), silent)
        self._state.resources = resources or {}
        self._cycle = 0
        self._own: dict[type, Callable[[Any], None]] = {
            events.PlanReady: self._plan_ready,
            events.PlanFailed: self._plan_failed,
            events.TimerFired: self._timer_fired,
        }

    def configure(self, limits: Limits, policy: NegotiationPolicy) -> None:
        """Use other limits and another policy for what begins from now on."""
        self._state.limits, self._state.policy = limits, policy

    # ---------------------------------------------------------------- driving it

    def handle(self, event: events.Event, now: float) -> list[Command]:
        """Take one event; what is to be done, the Store first, RunStrategy last."""
        return self.handle_all((event,), now)

    def handle_all(self, batch: Iterable[events.Event], now: float) -> list[Command]:
        """Take the events of one instant; at most one Store (first) and one RunStrategy (last)."""
        state = self._state
        state.now = now
        for event in batch:
            handler = HANDLERS.get(type(event))
            if handler is not None:
                handler(state, event)
            else:
                self._own[type(event)](event)
        if state.ledger.draining:
            node_registry.emptied(state)
            node_handlers.ended(state)
            drain.review(state)
        self._review()
        if state.plan_due and planning.gives_up(state):
            self._review()
        commands = state.drain()
        if state.plan_due:
            self._cycle += 1
            commands.append(planning.run_strategy(state, CycleId(self._cycle)))
        return commands

    def _review(self) -> None:
        """See what the events of an instant mean for talks and requests."""
        state = self._state
        if state.isolated:
            fencing.review(state)
        if state.negotiating or state.donors_to_review:
            coordination.review(state)
        if state.requests:
            size_requests.review(state)

    def _plan_ready(self, event: events.PlanReady) -> None:
        """Commit a plan; one for an older view gives way to the one that is under way."""
        if event.cycle != self._cycle:
            return
        # What the commit itself changes is what the strategy wanted: no new cycle for that.
        due = self._state.plan_due
        planning.planned(self._state)
        self._state.plan_fault, self._state.plan_faults = "", 0
        self._state.plan_due = planning.commit(self._state, event.plan) or due

    def _plan_failed(self, event: events.PlanFailed) -> None:
        planning.failed(self._state, event.reason)

    def _timer_fired(self, event: events.TimerFired) -> None:
        state, timer = self._state, event.timer
        if timer.kind is TimerKind.WAKE:
            planning.woken(state)
            return
        job = state.jobs.get(timer.job)
        if job is None or job.run != timer.run:
            return
        if timer.kind in (TimerKind.QUIET, TimerKind.SETTLE):
            state.plan_due = True
        elif timer.kind in (TimerKind.LIMIT, TimerKind.ESTIMATE):
            job_end.time_over(state, job, timer)
        elif timer.kind in _JOB_TIMERS:
            _JOB_TIMERS[timer.kind](state, job)
        elif timer.kind is TimerKind.CUT_OFF:
            pass  # the review after each instant sees to it
        elif timer.kind is TimerKind.SAVE:
            suspension.timed_out(state, timer)
        elif timer.kind in (TimerKind.OFFER, TimerKind.RELEASE_TIME):
            negotiation.timed_out(state, timer)
        else:
            resize_steps.timed_out(state, timer)

    # ---------------------------------------------------------------- reading it

    @property
    def jobs(self) -> dict[JobId, Job]:
        """All jobs, also ended ones until ``forget``; read only."""
        return self._state.jobs

    @property
    def nodes(self) -> dict[NodeName, Node]:
        """All nodes ever registered; read only."""
        return self._state.nodes

    @property
    def state(self) -> State:
        """The state, for the functions of this package that read it."""
        return self._state

    @property
    def memory(self) -> object:
        """What the strategy remembers."""
        return self._state.memory

    @property
    def strategy(self) -> str:
        """The strategy's name, for reasons and history."""
        return self._state.strategy

    @strategy.setter
    def strategy(self, name: str) -> None:
        self._state.strategy = name
        suspension.release_parked(self._state)
        self._state.plan_due = True

    @property
    def next_resize(self) -> int:
        """The number of the next resize; must be restored after a restart."""
        return self._state.next_resize

    def largest(self) -> int:
        """Processors of all known nodes but spare ones: no job can ever have more."""
        return sum(node.slots for node in self._state.nodes.values() if not node.spare)

    def check_invariants(self) -> None:
        """Raise InvariantError if the state contradicts itself."""
        check(self._state)

    # ---------------------------------------------------------------- its life

    def forget(self, job_id: JobId) -> None:
        """Drop an ended job from memory."""
        job = self._state.jobs.get(job_id)
        if job is not None and job.final:
            del self._state.jobs[job_id]

    def restore(
        self, nodes: Iterable[Node], jobs: Iterable[Job], memory: object, next_resize: int
    ) -> None:
        """Take over what a former life stored; before the first event."""
        recovery.restore(self._state, nodes, jobs, memory, next_resize)

    def recover(self, now: float) -> list[Command]:
        """After ``restore``: what must be said and armed again."""
        self._state.now = now
        recovery.recover(self._state)
        size_requests.review(self._state)  # a resize that they waited for may have been taken back
        suspension.recover(self._state)
        fencing.recover(self._state)
        resize_transaction.start_promised(self._state)
        return self._state.drain()

"""The core as a state machine: events in, commands out. Daemon and simulator use the same core.

The core does no I/O, knows no clock and starts no threads.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pliant.core import events
from pliant.core.commands import Command
from pliant.core.handlers import (
    application_sessions,
    array_tasks,
    counter_offer_decisions,
    donor_negotiation,
    drain,
    operator_resize,
    planned_relocations,
    planning,
    server_restart,
    size_requests,
    stuck_processes,
    submission,
    suspend_resume_requeue,
)
from pliant.core.handlers import nodes as node_handlers
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.model.usage import Usage
from pliant.core.state import user_processor_limits
from pliant.core.state.accounting import Accounting
from pliant.core.state.core_state import CoreState
from pliant.core.state.invariants import check
from pliant.core.transitions import (
    begin_times,
    dependencies,
    fencing,
    job_end,
    leaving_ranks,
    node_registry,
    resize_after_agreement,
    resize_open_close,
)
from pliant.core.values.ids import CycleId, JobId, NodeName
from pliant.core.values.negotiation_policy import NegotiationPolicy
from pliant.core.values.timeouts import Timeouts
from pliant.core.values.user_limits import NO_LIMITS, UserLimits

Handler = Callable[[CoreState, Any], None]

#: The handler of each event. ``Core`` itself handles the four events that are not listed.
EVENT_HANDLERS: dict[type, Handler] = {
    events.JobSubmitted: submission.on_job_submitted,
    events.JobCancelled: submission.on_job_cancelled,
    events.TasksCancelled: submission.on_tasks_cancelled,
    events.JobHeld: submission.on_job_held,
    events.JobReleased: submission.on_job_released,
    events.PriorityChanged: submission.on_priority_changed,
    events.JobSignalled: submission.on_job_signalled,
    events.JobSuspended: suspend_resume_requeue.on_job_suspended,
    events.JobResumed: suspend_resume_requeue.on_job_resumed,
    events.JobRequeued: suspend_resume_requeue.on_job_requeued,
    events.ResizeRequested: operator_resize.on_resize_requested,
    events.NodeRegistered: node_handlers.on_node_registered,
    events.NodeSuspected: node_handlers.on_node_suspected,
    events.NodeRecovered: node_handlers.on_node_recovered,
    events.NodeLost: node_handlers.on_node_lost,
    events.NodeDrained: node_handlers.on_node_drained,
    events.NodeResumed: node_handlers.on_node_resumed,
    events.CheckpointFolderTested: node_handlers.on_checkpoint_folder_tested,
    events.NodeLoadMeasured: node_handlers.on_node_load_measured,
    events.NodeAble: node_handlers.on_node_able,
    events.NodeRemoved: node_registry.on_node_removed,
    events.WorldReady: node_handlers.on_world_ready,
    events.ProcessesExited: stuck_processes.on_processes_exited,
    events.ApplicationRegistered: application_sessions.on_application_registered,
    events.ApplicationLeft: application_sessions.on_application_left,
    events.StandbyReady: resize_after_agreement.on_standby_ready,
    events.OfferAnswered: counter_offer_decisions.on_offer_answered,
    events.SizesRequested: size_requests.on_sizes_requested,
    events.RequestCancelled: size_requests.on_request_cancelled,
    events.SpeedMeasured: application_sessions.on_speed_measured,
    events.ResizeBegun: resize_after_agreement.on_resize_begun,
    events.ResizeDecided: resize_after_agreement.on_resize_decided,
    events.ResizeWithdrawn: resize_after_agreement.on_resize_withdrawn,
    events.SaveReported: suspend_resume_requeue.on_save_reported,
    events.SuspensionHeld: suspend_resume_requeue.on_suspension_held,
}

#: The handler of each timer. A handler ignores a timer that is no longer relevant.
TIMER_HANDLERS: dict[TimerKind, Callable[[CoreState, Timer], None]] = {
    TimerKind.OFFER: counter_offer_decisions.on_negotiation_timeout,
    TimerKind.RELEASE_TIME: counter_offer_decisions.on_negotiation_timeout,
    TimerKind.PREPARE: resize_after_agreement.on_resize_timeout,
    TimerKind.SAFE_POINT: resize_after_agreement.on_resize_timeout,
    TimerKind.DEADLINE: resize_after_agreement.on_resize_timeout,
    TimerKind.RELEASE: resize_after_agreement.on_resize_timeout,
    TimerKind.ROLLBACK: resize_after_agreement.on_resize_timeout,
    TimerKind.LEAVERS: leaving_ranks.on_leavers_timeout,
    TimerKind.SAVE: suspend_resume_requeue.on_save_timeout,
    TimerKind.START: stuck_processes.on_start_timeout,
    TimerKind.END: stuck_processes.on_end_timeout,
    TimerKind.STRAGGLERS: stuck_processes.on_stragglers_timeout,
    TimerKind.CUT_OFF: fencing.on_isolation_end,
    TimerKind.BEGIN: begin_times.on_begin,
    TimerKind.LIMIT: job_end.on_time_limit,
    TimerKind.WARNING: job_end.on_warning,
    TimerKind.ESTIMATE: job_end.on_time_limit,
    TimerKind.SETTLE: planning.on_plan_due,
    TimerKind.WITHHELD: resize_open_close.on_withheld_timeout,
    TimerKind.QUIET: planning.on_plan_due,
    TimerKind.REQUEST: size_requests.on_request_deadline,
    TimerKind.WAKE: planning.on_wake,
}


class Core:
    """The state machine: it takes events and returns commands."""

    def __init__(
        self,
        strategy: str = "equipartition",
        limits: Timeouts | None = None,
        *,
        policy: NegotiationPolicy | None = None,
        silent: bool = False,
        resources: Mapping[str, int] | None = None,
        accounting: Accounting | None = None,
        user_limits: UserLimits = NO_LIMITS,
    ) -> None:
        """Start without jobs and nodes.

        Args:
            strategy: the name of the strategy, for reasons and the history.
            limits: the time limits for applications and nodes.
            policy: the rules of the server's side in negotiations.
            silent: whether nothing is stored, and only refused parts of plans get into the history.
            resources: the amount of each named resource of the cluster.
            accounting: counts the usage of users; None if nothing is charged.
            user_limits: the limits of users.
        """
        self._state = CoreState(
            strategy, limits or Timeouts(), policy or NegotiationPolicy(), silent
        )
        self._state.resources = resources or {}
        self._state.accounting = accounting
        self._state.user_limits = user_limits
        self._cycle = 0
        self._own: dict[type, Callable[[Any], None]] = {
            events.PlanReady: self._plan_ready,
            events.PlanFailed: self._plan_failed,
            events.TimerFired: self._timer_fired,
            events.SettingsChanged: self._settings_changed,
        }

    def configure(self, limits: Timeouts, policy: NegotiationPolicy) -> None:
        """Use other time limits and another negotiation policy from now on."""
        self._state.limits, self._state.policy = limits, policy

    # ---------------------------------------------------------------- events

    def handle(self, event: events.Event, now: float) -> list[Command]:
        """Handle one event, and return the commands that follow.

        If a `Store` is among the commands, it is the first; a `RunStrategy` is the last.
        """
        return self.handle_all((event,), now)

    def handle_all(self, batch: Iterable[events.Event], now: float) -> list[Command]:
        """Handle all events of one instant, and return the commands that follow.

        Args:
            batch: the events, in order.
            now: seconds since the epoch.

        Returns:
            The commands: at most one Store, which is the first, and at most one RunStrategy, which
            is the last.
        """
        state = self._state
        state.now = now
        for event in batch:
            handler = EVENT_HANDLERS.get(type(event))
            if handler is not None:
                handler(state, event)
            else:
                self._own[type(event)](event)
        if state.ledger.draining:
            node_registry.mark_drained(state)
            node_handlers.give_back_cleared_nodes(state)
            drain.ask_to_leave_draining(state)
        if state.growing_away:
            planned_relocations.continue_growing_away(state)
        self._review()
        if state.plan_due and planning.stop_revising(state):
            self._review()
        commands = state.drain()
        if state.plan_due:
            self._cycle += 1
            commands.append(planning.run_strategy(state, CycleId(self._cycle)))
        return commands

    def _review(self) -> None:
        """Decide, after a batch of events, about everything that such events may have changed.

        These are dependencies, array tasks, jobs on lost nodes, negotiations and size requests.
        """
        state = self._state
        if state.dependencies_to_review:
            dependencies.review(state)
        while state.arrays and array_tasks.review(state):
            dependencies.review(state)
        if state.isolated:
            fencing.release_fenced(state)
        if state.negotiating or state.donors_to_review:
            donor_negotiation.review_coordination(state)
        if state.requests:
            size_requests.review_size_requests(state)

    def _plan_ready(self, event: events.PlanReady) -> None:
        """Carry out a plan; ignore it if the strategy has meanwhile been asked for a newer one."""
        if event.cycle != self._cycle:
            return
        # The strategy wanted the changes of the commit, so they need no new cycle.
        due = self._state.plan_due
        planning.outcomes_delivered(self._state)
        self._state.plan_fault, self._state.plan_faults = "", 0
        self._state.plan_due = planning.commit(self._state, event.plan) or due

    def _plan_failed(self, event: events.PlanFailed) -> None:
        planning.on_plan_failed(self._state, event.reason)

    def _settings_changed(self, event: events.SettingsChanged) -> None:
        """Apply changed settings, and plan again."""
        state = self._state
        self.configure(event.limits, event.policy)
        if state.accounting is not None:
            state.accounting.configure(event.shares, state.now)
        if event.user_limits != state.user_limits:
            state.user_limits = event.user_limits
            user_processor_limits.note_excess(state)
            state.rows.stale.update(dict.fromkeys((*state.waiting, *state.active)))
        state.plan_due = True

    def _timer_fired(self, event: events.TimerFired) -> None:
        TIMER_HANDLERS[event.timer.kind](self._state, event.timer)

    # ---------------------------------------------------------------- reading

    @property
    def jobs(self) -> dict[JobId, Job]:
        """Return all jobs, including ended ones until ``forget``; callers must not change them."""
        return self._state.jobs

    @property
    def nodes(self) -> dict[NodeName, Node]:
        """Return all known nodes. Callers must not change the dict."""
        return self._state.nodes

    @property
    def state(self) -> CoreState:
        """Return the state, which only functions of this package may use."""
        return self._state

    @property
    def memory(self) -> object:
        """Return the data that the strategy keeps from plan to plan."""
        return self._state.memory

    @property
    def strategy(self) -> str:
        """Return the name of the strategy."""
        return self._state.strategy

    @strategy.setter
    def strategy(self, name: str) -> None:
        """Use another strategy from now on, and requeue the jobs that the old one suspended.

        The data that the old strategy kept (`memory`) are dropped, because their form depends on
        the strategy and its options.
        """
        if self._state.memory is not None:
            self._state.memory, self._state.memory_changed = None, True
        self._state.strategy = name
        suspend_resume_requeue.requeue_suspended_by_strategy(self._state)
        self._state.plan_due = True

    @property
    def next_resize(self) -> int:
        """Return the number that the next resize gets; it is stored, so that none is used twice."""
        return self._state.next_resize

    def largest(self) -> int:
        """Return the size of the largest possible job: all processors but those of spare nodes."""
        return sum(node.slots for node in self._state.nodes.values() if not node.spare)

    def check_invariants(self) -> None:
        """Check all invariants of the state.

        Raises:
            InvariantError: the state contradicts itself, which is a bug.
        """
        check(self._state)

    # ---------------------------------------------------------------- restart

    def forget(self, job_id: JobId) -> None:
        """Remove a job from memory if it has ended; otherwise do nothing."""
        job = self._state.jobs.get(job_id)
        if job is not None and job.final:
            del self._state.jobs[job_id]

    def restore(
        self,
        nodes: Iterable[Node],
        jobs: Iterable[Job],
        memory: object,
        next_resize: int,
        usage: Iterable[Usage] = (),
        ended: Mapping[JobId, JobState] | None = None,
    ) -> None:
        """Fill a new core with the stored state of an earlier server, before the first event.

        Args:
            nodes: all nodes.
            jobs: the jobs that have not ended.
            memory: the memory of the strategy.
            next_resize: the number of the next resize.
            usage: the usage of each user.
            ended: the final states of ended jobs on which other jobs depend.
        """
        for number, final in (ended or {}).items():
            self._state.note_end(number, final)
        if self._state.accounting is not None:
            self._state.accounting.restore(usage)
        server_restart.restore(self._state, nodes, jobs, memory, next_resize)
        user_processor_limits.note_excess(self._state)

    def recover(self, now: float) -> list[Command]:
        """Return the commands that continue open starts, resizes and saves after ``restore``."""
        self._state.now = now
        server_restart.recover(self._state)
        size_requests.review_size_requests(
            self._state
        )  # a resize that they waited for may have been taken back
        suspend_resume_requeue.recover(self._state)
        fencing.recover(self._state)
        resize_open_close.start_reserved(self._state)
        return self._state.drain()

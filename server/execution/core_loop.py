"""The execute thread, which owns the core.

In each round it takes all events that have arrived, lets the core handle them and the strategy
plan, commits the result in one transaction, and then carries out the commands of the core.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pliant.core.commands import AnswerUser, Command, Note, RunStrategy, SetTimer, Store
from pliant.core.events import Event, JobSubmitted, TimerFired
from pliant.core.state_machine import Core
from pliant.core.values.ids import JobId
from pliant.faults import active
from pliant.protos.daemons.service_manager import ServiceManager
from pliant.server.database.compare_and_set import RowVersions
from pliant.server.database.statements import Write
from pliant.server.database.writer import Writer
from pliant.server.execution import failpoints
from pliant.server.execution.command_execution import CommandDispatcher
from pliant.server.execution.commit_batch import CommitBatch
from pliant.server.execution.committer import Committer
from pliant.server.execution.pending_requests import RequestTable, UserEvent
from pliant.server.execution.planner import Planner
from pliant.server.execution.strategy_choice import StrategyChoice
from pliant.server.execution.timers import Timers
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.clock import HybridClock
from pliant.server.support.stall_detection import wait_measuring_stall
from pliant.server.support.threads import start_thread, uncancellable_future

log = logging.getLogger(__name__)

#: Maximum number of plans in one round; then new events are handled.
MAX_PLANS_PER_ROUND = 4
#: A commit that no other process relies on is deferred by at most this long, seconds.
MAX_DEFER_S = 0.01
#: A round with only submissions that took this long is followed by an equally long pause, seconds.
LONG_ROUND_S = 0.005
MAX_PAUSE_S = 0.05


@dataclass(slots=True)
class CoreInput:
    """An entry of the core's queue: an event or a function that reads the core, and its result."""

    event: Event | None
    changes: Sequence[Write] = ()
    #: Called with the core after the event was handled; its result becomes that of the future.
    read: Callable[[Core], Any] | None = None
    future: Future[Any] | None = None
    #: Whether ``read`` may be answered from memory while the state cannot be stored.
    uncommitted_ok: bool = False
    #: A strategy that replaces the one in force, and the row that stores it.
    strategy: tuple[StrategyChoice, Write] | None = None
    result: Any = None
    error: BaseException | None = None


class CoreLoop:
    """Runs the core in the execute thread; no other thread calls the core.

    Args:
        core: the core with the restored state.
        planner: runs the strategy.
        writer: the writer of the database.
        clock: the clock of the server.
        dispatcher: carries out the commands of the core.
        status: the cache to which jobs and nodes are published after each commit.
        row_versions: the expected versions of the open jobs' rows in the database.
        on_jobs_ended: is called with the jobs whose end has become durable.
        manager: restarts the server if this thread hangs.
        debug: check all invariants after each event.
    """

    def __init__(  # noqa: PLR0913 - the owner of the core drives many parts
        self,
        core: Core,
        planner: Planner,
        writer: Writer,
        clock: HybridClock,
        dispatcher: CommandDispatcher,
        status: StatusCache,
        *,
        row_versions: RowVersions,
        on_jobs_ended: Callable[[Sequence[JobId]], None],
        manager: ServiceManager | None = None,
        debug: bool = False,
    ) -> None:
        self._core, self._planner = core, planner
        self._committer = Committer(writer, lambda: self._stopping, self._delayed)
        self._clock, self._dispatcher, self._status = clock, dispatcher, status
        self._debug, self._manager = debug, manager or ServiceManager()
        self._timers = Timers()
        self._flag = threading.Condition()
        self._inbox: list[CoreInput] = []
        self._entries: list[CoreInput] = []  # of the current round
        self._stopping = False
        self._pending_plan: RunStrategy | None = None
        self._deferred: CommitBatch | None = None  # not stored yet; no other process relies on it
        self._deferred_until = 0.0
        self._row_versions, self._on_jobs_ended = row_versions, on_jobs_ended
        self._stored_resize = -1  # the number of the next resize in the database
        self._pending_requests = RequestTable()
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- any thread

    def post(self, *events: Event) -> None:
        """Queue events for the core in this order, without waiting."""
        self._put(*map(CoreInput, events))

    def commit(
        self,
        event: Event,
        changes: Sequence[Write] = (),
        read: Callable[[Core], Any] | None = None,
    ) -> Future[Any]:
        """Queue an event for the core; return a future that is done when its result is durable.

        Args:
            event: the event for the core.
            changes: rows to write in the same transaction.
            read: called with the core after the event; its result is that of the future.
        """
        future: Future[Any] = uncancellable_future()
        self._put(CoreInput(event, changes, read, future))
        return future

    @property
    def strategy_options(self) -> Mapping[str, object]:
        """Return the options of the strategy in force."""
        return self._planner.options or {}

    def call(self, read: Callable[[Core], Any], *, uncommitted_ok: bool = False) -> Future[Any]:
        """Queue a call of ``read`` with the core, and return a future of its result.

        ``read`` is called between two events, in the thread of the core.

        Args:
            read: the function to call.
            uncommitted_ok: call ``read`` even while the state in memory cannot be stored.
        """
        future: Future[Any] = uncancellable_future()
        self._put(CoreInput(None, (), read, future, uncommitted_ok))
        return future

    def switch_strategy(self, choice: StrategyChoice, row: Write) -> Future[Any]:
        """Queue a change of the strategy; return a future that is done when the change is durable.

        Args:
            choice: the strategy, which has been checked.
            row: the row that stores the choice, in the same transaction.
        """
        future: Future[Any] = uncancellable_future()
        self._put(CoreInput(None, (), None, future, strategy=(choice, row)))
        return future

    def ask(self, event: UserEvent) -> Future[AnswerUser]:
        """Queue a request of a user; return a future of the core's answer.

        The future fails with StorageDelayedError while the database does not accept the state.
        """
        with self._flag:  # so that a pending request is either in the inbox or with the core
            request, future = self._pending_requests.new()
            self._put(CoreInput(replace(event, request=request)))
        return future

    def _put(self, *entries: CoreInput) -> None:
        with self._flag:
            self._inbox += entries
            self._flag.notify()

    # ---------------------------------------------------------------- life

    def start(self, commands: Sequence[Command], on_fault: Callable[[str], None]) -> None:
        """Start the thread.

        Args:
            commands: the core's commands after the restart, which are carried out first.
            on_fault: is called with the thread's name if an error ends the thread.
        """

        def run() -> None:
            result = self._new_result()
            self._sort_commands(commands, result)
            self._finish(result, [])
            self._work()

        self._thread = start_thread("execute", run, on_fault)

    def stop(self) -> None:
        """Handle all events that have arrived, then end the thread."""
        with self._flag:
            self._stopping = True
            self._flag.notify()
        if self._thread:
            self._thread.join()
        self._planner.close()

    def _work(self) -> None:
        while (entries := self._gather()) is not None:
            begin, self._entries = time.thread_time(), entries
            result = self._new_result()
            self._handle(entries, result)
            self._finish(result, entries)
            self._throttle_submissions(entries, time.thread_time() - begin)
        self._committer.wait_pending()

    @staticmethod
    def _throttle_submissions(entries: list[CoreInput], spent: float) -> None:
        """Pause after a long round of submissions, so that the next plan covers more new jobs.

        Args:
            entries: the events of the round.
            spent: the seconds that the round took.
        """
        if spent > LONG_ROUND_S and all(isinstance(e.event, JobSubmitted) for e in entries):
            time.sleep(min(spent, MAX_PAUSE_S))

    def _gather(self) -> list[CoreInput] | None:
        """Wait until events have arrived or timers are due, and return them.

        None means that the server stops and nothing is left, so that the thread ends.
        """
        with self._flag:
            while True:
                self._manager.alive()
                now = self._clock.now()
                due = self._timers.due(now)
                stale = self._deferred is not None and (
                    self._stopping or now >= self._deferred_until
                )
                if self._inbox or due or self._pending_plan or stale:
                    entries = [*self._inbox, *(CoreInput(TimerFired(timer)) for timer in due)]
                    self._inbox.clear()
                    return entries
                if self._stopping:
                    return None
                if late := wait_measuring_stall(self._flag, self._wait_s()):
                    self._timers.extend(late, self._clock.now())

    def _wait_s(self) -> float | None:
        """Return how many seconds the loop may sleep; None if nothing limits the time.

        The sleep ends when the next timer or a deferred commit is due, or when the thread has to
        report to the service manager that it is alive.
        """
        now, due = self._clock.now(), self._timers.next_time()
        waits = [] if self._manager.interval_s is None else [self._manager.interval_s]
        if due is not None:
            waits.append(max(0.0, due - now))
        if self._deferred is not None:
            waits.append(max(0.0, self._deferred_until - now))
        return min(waits, default=None)

    # ---------------------------------------------------------------- one round

    def _new_result(self) -> CommitBatch:
        result = CommitBatch(plan=self._pending_plan)
        self._pending_plan = None
        return result

    def _handle(self, entries: list[CoreInput], result: CommitBatch) -> None:
        """Let the core handle the events in ``entries``, and answer the queries among them.

        Events between two queries are handled together. The rows and commands that result are added
        to ``result``.
        """
        run: list[CoreInput] = []
        for entry in entries:
            result.changes += entry.changes
            if entry.event is not None:
                run.append(entry)
            if isinstance(entry.event, JobSubmitted):
                self._row_versions.remember_submitted(entry.event.spec, held=entry.event.held)
            if entry.read is not None or entry.strategy is not None or self._debug:
                self._handle_run(run, result)
                run = []
                self._run_query(entry)
                self._switch(entry, result)
        self._handle_run(run, result)

    def _handle_run(self, run: list[CoreInput], result: CommitBatch) -> None:
        """Let the core handle the events in ``run``, a part of the round without queries.

        If one event fails, its sender gets the error, and the others are handled anyway.
        """
        waiting = iter(run)
        current: list[CoreInput] = []

        def events() -> Iterator[Event]:
            for entry in waiting:
                current[:] = [entry]
                assert entry.event is not None
                yield entry.event

        while run:
            try:
                self._sort_commands(self._core.handle_all(events(), self._clock.now()), result)
                break
            except Exception as error:
                log.exception("the core could not handle %s", current and current[0].event)
                if not current:
                    raise
                self._fail(current[0], error)
                current.clear()
        if run and self._debug:
            self._core.check_invariants()

    def _fail(self, entry: CoreInput, error: Exception) -> None:
        entry.error = error
        self._pending_requests.fail(_request(entry), error)

    def _run_query(self, entry: CoreInput) -> None:
        if entry.read is not None and entry.error is None:
            try:
                entry.result = entry.read(self._core)
            except Exception as error:
                entry.error = error

    def _switch(self, entry: CoreInput, result: CommitBatch) -> None:
        """If an entry names another strategy, use it from now on and let the core plan with it."""
        if entry.strategy is None:
            return
        choice, row = entry.strategy
        before = self._planner.name
        try:
            self._planner.replace(choice.name, choice.options)
        except Exception as error:
            entry.error = error
            return
        self._core.strategy = choice.name
        text = f"strategy {choice.name} replaces {before}, chosen by {choice.user}"
        log.info("%s", text)
        data = {"from": before, "to": choice.name, "user": choice.user}
        result.notes.append(Note(self._clock.now(), "strategy.replaced", text, None, data))
        result.changes.append(row)
        self._sort_commands(self._core.handle_all((), self._clock.now()), result)
        entry.result = text

    def _sort_commands(self, commands: Sequence[Command], result: CommitBatch) -> None:
        """Sort the core's commands: timers are set at once, all others are added to ``result``.

        ``result`` keeps three kinds apart: rows to store, a call of the strategy, and messages to
        send.
        """
        for command in commands:
            match command:
                case Store():
                    result.store(command)
                case RunStrategy():
                    result.plan = command
                case SetTimer():
                    self._timers.set(command.timer, command.at)
                case _:
                    result.commands.append(command)

    def _plan(self, result: CommitBatch) -> None:
        for _ in range(MAX_PLANS_PER_ROUND):
            if result.plan is None:
                return
            order, result.plan = result.plan, None
            entry = CoreInput(self._planner.run(order))
            self._handle_run([entry], result)
            if entry.error is not None:
                fault = f"its plan could not be carried out: {entry.error!r}"
                self._handle_run([CoreInput(self._planner.reject_plan(order.cycle, fault))], result)
            if (text := self._planner.fall_back()) is not None:
                self._core.strategy = self._planner.name
                result.notes.append(Note(self._clock.now(), "strategy.replaced", text))
                self._sort_commands(self._core.handle_all((), self._clock.now()), result)
        self._pending_plan = result.plan

    def _finish(self, result: CommitBatch, entries: list[CoreInput]) -> None:
        """Finish a round: plan, send proposals, commit, publish, dispatch, answer, in this order.

        Only proposals in negotiations are sent before the commit, so that the application can work
        on its answer meanwhile. A proposal binds nobody until GO, the order to carry out a resize.
        If the server dies, both sides forget the proposal: the application notices that its stream
        has broken. If a round does nothing but send proposals, its commit is deferred to the next
        round for a short time, because the commit would delay the handling of the answer.
        """
        self._plan(result)
        failpoints.before_commit(result)
        for proposal in result.take_proposals():
            self._dispatch(proposal)
        failpoints.proposed(result)
        if self._defer_commit(result, entries):
            return
        jobs = [self._core.jobs[job] for job in sorted(result.jobs) if job in self._core.jobs]
        if result.nodes:  # before dispatch, because a launch needs the processors of its nodes
            known = self._core.nodes
            self._status.publish_nodes(
                [known[name] for name in result.nodes if name in known], result.nodes - known.keys()
            )
        next_resize = self._core.next_resize
        rows = result.rows(
            self._core, self._row_versions, self._stored_resize, self._status.summary
        )
        for command in result.commands:
            rows += self._dispatcher.prepare(command)
        if rows and not _must_commit_first(result, entries):
            self._stored_resize = next_resize
            show = partial(
                self._status.publish, self._status.snapshot(jobs)
            )  # their state as of now
            if self._committer.commit_later(rows, show) and active():
                self._committer.wait_pending()
                failpoints.after_commit(result)
            return
        if not self._committer.commit(rows):
            return
        failpoints.after_commit(result)
        self._stored_resize = next_resize
        self._status.strategy = self._core.strategy
        self._status.strategy_options = self._planner.options or {}
        ended = self._status.publish_jobs(jobs)
        for command in result.commands:
            self._dispatch(command)
        failpoints.sent(result)
        for entry in entries:
            self._resolve(entry)
        if ended:
            for job in ended:
                self._timers.drop(job, self._core.jobs[job].run)
                self._core.forget(job)
                self._row_versions.forget(job)
            self._on_jobs_ended(ended)

    def _defer_commit(self, result: CommitBatch, entries: list[CoreInput]) -> bool:
        """Defer the commit of this round's result if possible; return whether it is deferred.

        If an earlier round was deferred, its result is first added to this one. Only a result on
        which no other process relies may be deferred.
        """
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            result.absorb(deferred)
        now = self._clock.now()
        if _must_commit_first(result, entries) or active() or not (result.jobs or result.notes):
            return False
        if deferred is None:
            self._deferred_until = now + MAX_DEFER_S
        if self._stopping or now >= self._deferred_until:
            return False
        self._deferred = result
        return True

    def _delayed(self, why: str) -> None:
        """Tell users with pending requests that the state cannot be stored at present.

        Requests that the core has not seen are withdrawn. Queries are answered from memory.
        """
        self._manager.alive()  # a restart would not help
        with self._flag:
            withdrawn = {_request(entry) for entry in self._inbox}
            looks = [entry for entry in self._inbox if entry.uncommitted_ok]
            self._inbox = [e for e in self._inbox if not (e.uncommitted_ok or _request(e))]
            self._pending_requests.delay(withdrawn, why)
        for entry in looks:
            self._run_query(entry)
        for entry in (*looks, *(entry for entry in self._entries if entry.uncommitted_ok)):
            self._resolve(entry)

    def _dispatch(self, command: Command) -> None:
        if isinstance(command, AnswerUser):
            self._pending_requests.answer(command)
            return
        try:
            self._dispatcher.dispatch(command)
        except Exception:
            log.exception("could not carry out %s", type(command).__name__)

    @staticmethod
    def _resolve(entry: CoreInput) -> None:
        if entry.future is None or entry.future.done():
            return
        if entry.error is not None:
            entry.future.set_exception(entry.error)
        else:
            entry.future.set_result(entry.result)


def _request(entry: CoreInput) -> int:
    """Return the number of the user's request in an entry; 0 for any other entry."""
    number: int = getattr(entry.event, "request", 0)
    return number


def _must_commit_first(result: CommitBatch, entries: list[CoreInput]) -> bool:
    return result.must_commit_first or any(entry.future is not None for entry in entries)

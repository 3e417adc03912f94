"""Availability queries: would a job be accepted, when, on how many processors, at what price?

The accept thread checks the job as it checks a submission, and takes a snapshot of the state. The
query thread then asks a second instance of the active strategy, so that a query changes nothing. A
strategy that is not part of Pliant is asked in a child process, which is killed if it does not
answer before the deadline.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from typing import Any

from pliant.core.model.jobs import JobSpec
from pliant.core.model.views_and_plans import Availability, View, WaitingJob
from pliant.core.state import views
from pliant.core.values.ids import JobId
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.execution.planner import DEADLINE_S, Planner
from pliant.server.execution.strategy_process import (
    StrategyProcess,
    StrategyProcessError,
    StrategyRefusedError,
)
from pliant.server.support.clock import HybridClock
from pliant.server.support.threads import start_thread, uncancellable_future
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.submission.submissions import Submissions
from pliant.strategies import Strategy, is_own, load_strategy

log = logging.getLogger(__name__)

#: The number of the job in a query: higher than all others, so that it is last in any order.
HYPOTHETICAL_JOB = JobId(1 << 62)
#: Maximum number of waiting queries. Further ones are refused.
MAX_WAITING = 100
#: The child process of a strategy is ended after this time without queries, seconds.
IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Question:
    """A query that waits for the answer of the strategy."""

    job: WaitingJob
    view: View
    #: On the monotonic clock.
    deadline: float
    answer: Future[Availability]


class AvailabilityQueries:
    """Answers the question whether a job would be accepted, by asking the active strategy.

    Args:
        core_loop: owns the state.
        submissions: checks jobs.
        planner: knows the active strategy.
        clock: the clock of the server.
        deadline_s: time for an answer of the strategy, in seconds.
    """

    def __init__(
        self,
        core_loop: CoreLoop,
        submissions: Submissions,
        planner: Planner,
        clock: HybridClock,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._core_loop, self._submissions, self._planner = core_loop, submissions, planner
        self._clock, self._deadline_s = clock, deadline_s
        self._waiting: queue.Queue[_Question | None] = queue.Queue(MAX_WAITING)
        self._strategy: Strategy | StrategyProcess | None = None
        #: Name and options of ``_strategy``.
        self._made_of: tuple[str, Mapping[str, object] | None] = ("", None)
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- the accept thread

    async def answer(
        self, raw: Any, user: str, uid: int, *, may_see_all: bool = True
    ) -> dict[str, Any]:
        """Ask the strategy whether and when it would start a job; nothing is stored.

        Args:
            raw: the job as the client sent it.
            user: the name of the user who asks.
            uid: the user id of this user.
            may_see_all: whether the user may see what depends on the jobs of others: the profit
                that they would lose, and texts of strategies that are not part of Pliant.

        Raises:
            UserRequestError: if the job is invalid, or too many queries wait.
        """
        name = self._planner.name
        try:
            found = await self._ask(raw, user, uid)
        except UserRequestError as error:
            if error.kind != "refused":
                raise
            found = Availability(False, None, 0, str(error))
        else:
            if not may_see_all:
                found = replace(found, price=None, reason=found.reason if is_own(name) else "")
        return {"strategy": name, **asdict(found)}

    async def _ask(self, raw: Any, user: str, uid: int) -> Availability:
        submission = self._submissions.check(raw, user)
        now = self._clock.now()
        # Of an array, the first task is asked about.
        spec = replace(submission, tasks=None).spec(HYPOTHETICAL_JOB, user, uid, now)
        if spec.begin is not None:
            # Strategies answer for a job that arrives now; nobody knows the queue at another time.
            return _from_begin(await self._ask_about(replace(spec, begin=None), now), spec.begin)
        return await self._ask_about(spec, now)

    async def _ask_about(self, spec: JobSpec, now: float) -> Availability:
        job, view = await asyncio.wrap_future(
            self._core_loop.call(
                lambda core: views.view_with_new_job(core.state, spec, now), uncommitted_ok=True
            )
        )
        if job is None:
            reason = f"it waits for nodes: {view.total} processors can be used at present"
            return Availability(True, None, 0, reason)
        question = _Question(job, view, time.monotonic() + self._deadline_s, uncancellable_future())
        try:
            self._waiting.put_nowait(question)
        except queue.Full:
            raise UserRequestError(
                f"{MAX_WAITING} queries wait already: try again later", kind="unavailable"
            ) from None
        done, _ = await asyncio.wait(
            {asyncio.wrap_future(question.answer)}, timeout=self._deadline_s
        )
        return done.pop().result() if done else self._late()

    def _late(self) -> Availability:
        return _unknown(f"strategy {self._planner.name}: no answer within {self._deadline_s:g} s")

    # ---------------------------------------------------------------- the thread

    def start(self, on_fault: Callable[[str], None]) -> None:
        """Start the thread that asks the strategy."""
        self._thread = start_thread("query", self._work, on_fault)

    def stop(self) -> None:
        """End the thread. Queries that still wait get no answer."""
        while self._thread is not None and self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=0.1)
                break
            except queue.Full:
                self._drop_waiting()
        if self._thread is not None:
            self._thread.join(self._deadline_s)

    def _drop_waiting(self) -> None:
        while True:
            try:
                self._waiting.get_nowait()
            except queue.Empty:
                return

    def _work(self) -> None:
        while True:
            try:
                question = self._waiting.get(timeout=IDLE_S)
            except queue.Empty:
                self._forget()
                continue
            if question is None:
                self._forget()
                return
            question.answer.set_result(self._evaluate(question))

    def _evaluate(self, question: _Question) -> Availability:
        """Return the strategy's answer about a job; an error becomes an answer that states it."""
        try:
            strategy = self._strategy_in_force()
            left = question.deadline - time.monotonic()
            if left <= 0:
                return self._late()
            if isinstance(strategy, StrategyProcess):
                return strategy.availability(question.job, question.view, left)
            found: object = strategy.is_available(question.job, question.view)
        except (StrategyProcessError, StrategyRefusedError) as error:
            return _unknown(f"strategy {self._planner.name}: {error}")
        except Exception as error:
            log.exception("strategy %s could not answer a query", self._planner.name)
            return _unknown(f"strategy {self._planner.name}: {type(error).__name__}: {error}")
        if not isinstance(found, Availability):
            return _unknown(f"strategy {self._planner.name}: returned {type(found).__name__}")
        return found

    def _strategy_in_force(self) -> Strategy | StrategyProcess:
        wanted = (self._planner.name, self._planner.options)
        if self._strategy is None or self._made_of != wanted:
            self._forget()
            name, options = wanted
            self._strategy = (
                load_strategy(name, options) if is_own(name) else _process(name, options)
            )
            self._made_of = wanted
        return self._strategy

    def _forget(self) -> None:
        if isinstance(self._strategy, StrategyProcess):
            self._strategy.close()
        self._strategy = None


def _process(name: str, options: Mapping[str, object] | None) -> StrategyProcess:
    """Start a process for a strategy and load the strategy there."""
    process = StrategyProcess(name, options or {})
    try:
        process.check()
    except (StrategyProcessError, StrategyRefusedError):
        process.close()
        raise
    return process


def _from_begin(found: Availability, begin: float) -> Availability:
    """Return the answer for a job that may not start before the time ``begin``.

    It is derived from the answer for the same job without a begin time. A refusal becomes
    "unknown", because the strategy may accept the job at its begin time.
    """
    if not found.accepted:
        return replace(found, accepted=None, reason=f"if it could begin now: {found.reason}")
    start = None if found.start is None else max(found.start, begin)
    return replace(found, start=start)


def _unknown(reason: str) -> Availability:
    return Availability(None, None, 0, reason)

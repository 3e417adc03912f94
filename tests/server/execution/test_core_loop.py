"""The execute thread outlives a strategy, waits for a full disk, and gives up in time.

What binds nobody it writes behind; what binds is done when it is durable, and not before.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import cast

import pytest

from pliant.core.commands import AnswerUser, Command, Launch
from pliant.core.events import JobHeld, JobSubmitted, NodeRegistered, ProcessesExited
from pliant.core.handlers import planning
from pliant.core.model.jobs import Exit, JobSpec, JobType
from pliant.core.model.views_and_plans import Plan, Start, View
from pliant.core.state.core_state import CoreState
from pliant.core.state_machine import Core
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.sizes import Sizes
from pliant.server.database.compare_and_set import RowVersions
from pliant.server.database.statements import Write
from pliant.server.database.writer import Writer
from pliant.server.execution import committer, core_loop
from pliant.server.execution.command_execution import CommandDispatcher
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.execution.pending_requests import StorageDelayedError
from pliant.server.execution.planner import FALLBACK, Planner
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.clock import HybridClock
from pliant.strategies.equipartition import Equipartition
from testkit import wait_until


class Outside:
    """A writer that fails or waits as it is told, and effects that are only noted."""

    def __init__(self) -> None:
        self.faults: list[Exception] = []
        #: Each commit fails so.
        self.always: Exception | None = None
        self.rows: list[Write] = []
        self.tries = 0
        #: Commits that end when the test says so; None: they end at once.
        self.held: list[tuple[Sequence[Write], Future[None]]] | None = None
        self.done: list[Command] = []

    def commit(self, rows: Sequence[Write]) -> Future[None]:
        self.tries += 1
        future: Future[None] = Future()
        if self.held is not None:
            self.held.append((rows, future))
        elif self.always is not None:
            future.set_exception(self.always)
        elif self.faults:
            future.set_exception(self.faults.pop(0))
        else:
            self._write(rows, future)
        return future

    def _write(self, rows: Sequence[Write], future: Future[None]) -> None:
        self.rows += rows
        future.set_result(None)

    def flush(self) -> None:
        """The disk is there again."""
        held, self.held = self.held or [], None
        for rows, future in held:
            self._write(rows, future)

    def prepare(self, _: Command) -> Sequence[Write]:
        return ()

    def dispatch(self, command: Command) -> None:
        self.done.append(command)

    def notes(self, kind: str) -> list[str]:
        return [str(row.values["text"]) for row in self.rows if row.values.get("kind") == kind]


class Server:
    """A core with its thread."""

    def __init__(self) -> None:
        self.outside, self.planner = Outside(), Planner("equipartition")
        self.core = Core("equipartition")
        self.broken = threading.Event()
        self.status = StatusCache()
        self.ended: list[JobId] = []
        self.execute = CoreLoop(
            self.core,
            self.planner,
            cast(Writer, self.outside),
            HybridClock(),
            cast(CommandDispatcher, self.outside),
            self.status,
            row_versions=RowVersions(),
            on_jobs_ended=self.ended.extend,
        )
        self.execute.start((), lambda _: self.broken.set())
        self.execute.commit(NodeRegistered(NodeName("n1"), 4)).result(30)

    def submit(self, number: int) -> Future[object]:
        return self.execute.commit(JobSubmitted(self.spec(number)))

    @staticmethod
    def spec(number: int, size: int = 1) -> JobSpec:
        sizes = Sizes((size,))
        return JobSpec(JobId(number), "job", "ann", JobType.MPI, sizes, float(number))

    def hold(self) -> list[tuple[Sequence[Write], Future[None]]]:
        """Let commits wait for ``flush``."""
        self.outside.held = []
        return self.outside.held


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(committer, "RETRY_S", 0.001)
    server = Server()
    yield server
    server.execute.stop()


def not_json(_: View) -> Plan:
    return Plan(memory={1, 2})


def wants_too_much(view: View) -> Plan:
    return Plan(starts=tuple(Start(job.id, 1 << 4) for job in view.waiting))


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (not_json, "not JSON serializable"),
        (wants_too_much, "on processors that are not there: 4"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_a_fault_of_the_strategy(
    server: Server, plan: Callable[[View], Plan], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Equipartition, "allocate_processors", lambda _, view: plan(view))
    check_faults(server, says)


def test_a_plan_that_breaks_the_commit_is_a_fault_of_the_strategy(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = planning.commit

    def commit(state: CoreState, plan: Plan) -> None:
        if state.strategy != FALLBACK:
            raise RuntimeError("no way")
        real(state, plan)

    monkeypatch.setattr(planning, "commit", commit)
    check_faults(server, "its plan could not be carried out: RuntimeError('no way')")


def check_faults(server: Server, says: str) -> None:
    """The strategy's faults are counted and shown, and the fallback starts all jobs."""
    for number in (1, 2, 3):
        server.submit(number).result(30)
    wait_until(lambda: server.core.strategy == FALLBACK)
    server.submit(4).result(30)
    assert all(says in text for text in server.outside.notes("strategy.failed"))
    assert len(server.outside.notes("strategy.failed")) == 3
    assert "failed 3 times in a row" in server.outside.notes("strategy.replaced")[0]
    wait_until(lambda: len(server.outside.notes("job.started")) == 4)
    assert not server.broken.is_set()


def fault(code: int) -> Exception:
    error = sqlite3.OperationalError("said the test")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, 261])
def test_what_may_pass_is_tried_again(server: Server, code: int) -> None:
    server.outside.faults[:] = [fault(code), fault(code)]
    server.submit(1).result(30)
    assert not server.broken.is_set()
    assert server.outside.notes("job.submitted")


def delayed(future: Future[AnswerUser]) -> bool:
    """Whether the core had taken a request that is told to wait."""
    with pytest.raises(StorageDelayedError, match="said the test") as told:
        future.result(30)
    return told.value.taken


@pytest.mark.case(16)
def test_requests_while_nothing_can_be_stored_are_answered_with_their_outcome(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(committer, "REPORT_AFTER_S", 0.0)
    for number in (1, 2):
        server.execute.commit(JobSubmitted(server.spec(number, size=9))).result(30)
    server.outside.always = fault(sqlite3.SQLITE_FULL)
    assert delayed(server.execute.ask(JobHeld(JobId(1), "ann"))), "it came before that was known"
    assert not delayed(server.execute.ask(JobHeld(JobId(2), "ann")))
    tries = server.outside.tries
    wait_until(lambda: server.outside.tries > tries + 10)
    # Who only looks is answered, who relies on what is durable is not.
    states = lambda core: [core.jobs[JobId(n)].state for n in (1, 2)]  # noqa: E731
    durable_only = server.execute.call(states)
    assert server.execute.call(states, uncommitted_ok=True).result(30) == ["HELD", "PENDING"]
    assert not durable_only.done()
    assert caplog.text.count("cannot store the state, trying again: said the test") == 1
    server.outside.always = None
    assert durable_only.result(30) == ["HELD", "PENDING"]
    assert server.outside.notes("job.held")
    assert not server.execute.ask(JobHeld(JobId(2), "ann")).result(30).refusal
    assert not server.broken.is_set()


def test_a_look_that_came_with_what_cannot_be_stored_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "REPORT_AFTER_S", 0.0)
    server.outside.always = fault(sqlite3.SQLITE_FULL)
    with server.execute._flag:  # both are in one round
        end = server.submit(1)
        look = server.execute.call(lambda core: len(core.jobs), uncommitted_ok=True)
    assert look.result(30) == 1
    assert not end.done()
    server.outside.always = None
    end.result(30)


def test_a_short_fault_of_the_database_is_not_reported(server: Server) -> None:
    server.outside.faults[:] = [fault(sqlite3.SQLITE_FULL)] * 20
    server.execute.post(JobSubmitted(server.spec(1, size=9)))
    assert not server.execute.ask(JobHeld(JobId(1), "ann")).result(30).refusal


@pytest.mark.parametrize("error", [fault(sqlite3.SQLITE_CORRUPT), ValueError("no such column")])
def test_what_will_not_pass_ends_the_server(
    server: Server, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    tries = server.outside.tries
    server.outside.faults[:] = [error]
    server.submit(1)
    assert server.broken.wait(30)
    assert server.outside.tries == tries + 1
    assert f"the database refuses the state, the server ends: {error}" in caplog.text


def test_what_binds_nobody_is_shown_when_it_is_durable(server: Server) -> None:
    held = server.hold()
    server.execute.post(JobSubmitted(server.spec(1, size=9)))  # it cannot start
    wait_until(lambda: held)
    assert server.status.entry(JobId(1)) is None
    # The round is over: nobody waits for the disk yet, and the next one can be handled.
    server.execute.post(JobSubmitted(server.spec(2, size=9)))
    wait_until(lambda: JobId(2) in server.core.jobs)
    server.outside.flush()
    wait_until(lambda: server.status.entry(JobId(2)))
    assert server.status.entry(JobId(1)) is not None


def test_what_was_written_behind_last_is_not_lost_when_the_server_stops(server: Server) -> None:
    server.outside.faults[:] = [fault(sqlite3.SQLITE_FULL)]
    server.execute.post(JobSubmitted(server.spec(1, size=9)))
    wait_until(lambda: not server.outside.faults)
    assert server.outside.notes("job.submitted") == []
    server.execute.stop()
    assert len(server.outside.notes("job.submitted")) == 1


def test_what_binds_nobody_is_stored_with_what_does(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_loop, "MAX_DEFER_S", 600.0)
    tries = server.outside.tries
    for number in (1, 2):
        server.execute.post(JobSubmitted(server.spec(number, size=9)))
    wait_until(lambda: JobId(2) in server.core.jobs)
    assert server.outside.notes("job.submitted") == []
    server.submit(3).result(30)
    assert server.outside.tries == tries + 1
    stored = [row.values.get("job") for row in server.outside.rows]
    assert stored.index(1) < stored.index(2) < stored.index(3)
    server.execute.post(JobSubmitted(server.spec(4, size=9)))
    server.execute.stop()
    assert len(server.outside.notes("job.submitted")) == 4


def test_a_launch_waits_for_the_disk(server: Server) -> None:
    held = server.hold()
    server.execute.post(JobSubmitted(server.spec(1)))
    wait_until(lambda: held)
    assert server.outside.done == []
    server.outside.flush()
    wait_until(lambda: server.outside.done)
    assert [type(command) for command in server.outside.done] == [Launch]


def test_the_end_of_a_job_is_known_when_it_is_durable(server: Server) -> None:
    server.submit(1).result(30)
    wait_until(lambda: server.outside.done)
    (processor,) = server.execute.call(lambda core: core.jobs[JobId(1)].ranks).result(30)
    held = server.hold()
    ends = (Exit(processor, 0, 0),)
    server.execute.post(ProcessesExited(JobId(1), 1, FIRST_START, ends))
    wait_until(lambda: held)
    entry = server.status.entry(JobId(1))
    assert entry is not None
    assert (entry.final, server.ended) == (False, [])
    server.outside.flush()
    wait_until(lambda: server.ended)
    entry = server.status.entry(JobId(1))
    assert entry is not None
    assert (entry.final, server.ended) == (True, [1])
    known = server.execute.call(lambda core: JobId(1) in core.jobs).result(30)
    assert not known

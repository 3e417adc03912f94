"""The execute thread outlives a strategy, waits for a full disk, and gives up in time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import cast

import pytest

from pliant.core import planning
from pliant.core.commands import Command
from pliant.core.core import Core
from pliant.core.events import JobSubmitted, NodeRegistered
from pliant.core.ids import JobId, NodeName
from pliant.core.jobs import JobSpec, JobType
from pliant.core.scheduling import Plan, Start, View
from pliant.core.sizes import Sizes
from pliant.core.state import State
from pliant.server import execute as module
from pliant.server.board import Board
from pliant.server.clock import HybridClock
from pliant.server.database.changes import Change
from pliant.server.database.writer import Writer
from pliant.server.effects import Effects
from pliant.server.execute import Execute
from pliant.server.planner import FALLBACK, Planner
from testkit import wait_until


class Outside:
    """A writer that fails as it is told, and effects that do nothing."""

    def __init__(self) -> None:
        self.faults: list[Exception] = []
        self.rows: list[Change] = []
        self.tries = 0

    def commit(self, rows: Sequence[Change]) -> Future[None]:
        self.tries += 1
        future: Future[None] = Future()
        if self.faults:
            future.set_exception(self.faults.pop(0))
        else:
            self.rows += rows
            future.set_result(None)
        return future

    def prepare(self, _: Command) -> Sequence[Change]:
        return ()

    def carry_out(self, _: Command) -> None:
        pass

    def notes(self, kind: str) -> list[str]:
        return [str(row.values["text"]) for row in self.rows if row.values.get("kind") == kind]


class Server:
    """A core with its thread."""

    def __init__(self) -> None:
        self.outside, self.planner = Outside(), Planner("equipartition")
        self.core = Core("equipartition")
        self.broken = threading.Event()
        self.execute = Execute(
            self.core,
            self.planner,
            cast(Writer, self.outside),
            HybridClock(),
            cast(Effects, self.outside),
            Board(),
        )
        self.execute.start((), lambda _: self.broken.set())
        self.execute.commit(NodeRegistered(NodeName("n1"), 4)).result(30)

    def submit(self, number: int) -> Future[object]:
        spec = JobSpec(JobId(number), "job", "ann", JobType.MPI, Sizes((1,)), float(number))
        return self.execute.commit(JobSubmitted(spec))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    server = Server()
    yield server
    server.execute.stop()


class Wrong:
    """A strategy whose plans look like plans."""

    def __init__(self, plan: Callable[[View], Plan]) -> None:
        self.allocate_processors = plan


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
    server: Server, plan: Callable[[View], Plan], says: str
) -> None:
    server.planner._strategy = Wrong(plan)  # type: ignore[assignment]
    check_faults(server, says)


def test_a_plan_that_breaks_the_commit_is_a_fault_of_the_strategy(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = planning.commit

    def commit(state: State, plan: Plan) -> None:
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

"""What is written behind is durable before anything that comes after it, or the server ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future
from typing import cast

import pytest

from pliant.server.database.statements import Write, put_meta
from pliant.server.database.writer import Writer, WriterStoppedError
from pliant.server.execution import committer
from pliant.server.execution.committer import Committer, StateLostError


class Disk:
    """A writer whose commits end when and how the test says."""

    def __init__(self) -> None:
        self.open: list[tuple[str, Future[None]]] = []
        self.begun: list[str] = []
        self.answers: list[Exception | None] = []

    def commit(self, changes: Sequence[Write]) -> Future[None]:
        future: Future[None] = Future()
        name = str(changes[0].values["key"])
        self.begun.append(name)
        if self.answers:
            self.end(future, self.answers.pop(0))
        else:
            self.open.append((name, future))
        return future

    @staticmethod
    def end(future: Future[None], error: Exception | None = None) -> None:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class Scene:
    def __init__(self) -> None:
        self.disk = Disk()
        self.log: list[str] = []
        self.stopping = False
        self.durable = Committer(cast(Writer, self.disk), lambda: self.stopping)

    def behind(self, name: str) -> bool:
        shown = lambda: self.log.append(f"{name} shown")  # noqa: E731
        return self.durable.commit_later([put_meta(name, "1")], shown)

    def write(self, name: str) -> bool:
        return self.durable.commit([put_meta(name, "1")])


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(committer, "RETRY_S", 0.001)
    return Scene()


FULL = sqlite3.OperationalError("database or disk is full")
FULL.sqlite_errorcode = sqlite3.SQLITE_FULL


def test_nobody_waits_for_what_is_written_behind(scene: Scene) -> None:
    assert scene.behind("a")
    assert scene.log == []
    scene.disk.end(scene.disk.open[0][1])
    assert scene.log == ["a shown"]
    assert scene.durable.wait_pending()
    assert scene.log == ["a shown"]


def test_what_comes_after_it_waits_for_it(scene: Scene) -> None:
    scene.disk.answers = [None, None]
    scene.behind("a")
    assert scene.write("b")
    assert (scene.disk.begun, scene.log) == (["a", "b"], ["a shown"])


def test_what_could_not_be_written_is_written_again_before_anything_else(scene: Scene) -> None:
    scene.disk.answers = [FULL, FULL, None, None]
    scene.behind("a")
    assert scene.write("b")
    assert scene.disk.begun == ["a", "a", "a", "b"]
    assert scene.log == ["a shown"]


def test_a_state_that_the_database_refuses_ends_the_server(scene: Scene) -> None:
    refused = sqlite3.IntegrityError("no such column")
    scene.disk.answers = [refused, refused]
    scene.behind("a")
    with pytest.raises(StateLostError):
        scene.behind("b")
    assert (scene.disk.begun, scene.log) == (["a", "a"], [])


def test_a_writer_that_has_stopped_is_not_waited_for(scene: Scene) -> None:
    stopped = WriterStoppedError("the server stops")
    scene.disk.answers = [stopped, stopped]
    scene.behind("a")
    assert not scene.write("b")
    assert scene.log == []

"""Two who write to one database although no lock kept them apart, and a line that comes often."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine

from pliant.server.database.engine import open_database
from pliant.server.database.meta_keys import MAX_ID_IN_FILE
from pliant.server.database.replaced_database_check import (
    FILE_NAME,
    KEY,
    CommitCount,
    CommitGuard,
    LastSeen,
    ReplacedError,
    read_last_seen,
    stored_count,
)
from pliant.server.database.statements import put_meta
from pliant.server.database.writer import Writer, apply_writes
from pliant.server.support.log_setup import RateLimitedLog


class Life:
    """The writer of one server."""

    def __init__(self, path: Path, generation: int) -> None:
        self.engine: Engine = open_database(path)
        with self.engine.begin() as connection:
            apply_writes(connection, [put_meta(KEY, CommitCount(generation).to_text())])
        self.guard = CommitGuard(path, generation, lambda: 7)
        self.writer = Writer(self.engine, self.guard)
        self.broken = threading.Event()
        self.writer.start(lambda _: self.broken.set())

    def put(self, key: str) -> None:
        self.writer.commit([put_meta(key, "1")]).result(30)

    def refused(self, key: str) -> str:
        with pytest.raises(ReplacedError) as error:
            self.put(key)
        assert self.broken.wait(30)
        return str(error.value)

    def meta(self) -> dict[str, str]:
        with self.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT key, value FROM meta")
            return {row.key: row.value for row in rows}

    def end(self) -> None:
        self.writer.stop()
        self.guard.close()
        self.engine.dispose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pliant.db"


@pytest.fixture
def live(path: Path) -> Iterator[Callable[[int], Life]]:
    """Return what begins the life of a server on the same database."""
    lives: list[Life] = []

    def begin(generation: int) -> Life:
        lives.append(Life(path, generation))
        return lives[-1]

    yield begin
    for life in lives:
        life.end()


def test_each_transaction_is_counted_once(live: Callable[[int], Life], path: Path) -> None:
    life = live(3)
    for key in "ab":
        life.put(key)
    with pytest.raises(Exception, match="NOT NULL"):
        life.writer.commit([put_meta("bad", None)]).result(30)  # type: ignore[arg-type]
    life.put("c")
    assert stored_count(life.meta()) == (3, 3)
    assert read_last_seen(path.with_name(FILE_NAME)) == LastSeen(CommitCount(3, 3), 7)


@pytest.mark.case(13)
def test_of_two_that_no_lock_keeps_apart_the_first_ends(
    live: Callable[[int], Life],
) -> None:
    first = live(1)
    first.put("a")
    second = live(2)
    refusal = first.refused("b")
    assert "expected change 1 of generation 1, found change 0 of generation 2" in refusal
    assert "a second server has been started" in refusal
    second.put("c")
    assert "b" not in second.meta()


@pytest.mark.parametrize(
    ("found", "shown", "cause"),
    [
        ("2 9", "change 9 of generation 2", "an older copy was put back"),
        ("3 0", "change 0 of generation 3", "an older copy was put back"),
        ("3 2", "change 2 of generation 3", "a second server of the same generation"),
        ("4 0", "change 0 of generation 4", "a second server has been started"),
        ("x", "found 'x'", "no server has stored this"),
    ],
)
def test_a_refusal_names_both_counters_and_the_likely_cause(
    live: Callable[[int], Life], found: str, shown: str, cause: str
) -> None:
    life = live(3)
    life.put("a")
    with life.engine.begin() as connection:
        apply_writes(connection, [put_meta(KEY, found)])
    refusal = life.refused("b")
    assert "expected change 1 of generation 3, found " in refusal
    assert shown in refusal
    assert cause in refusal


def test_each_record_replaces_the_whole_one_before(path: Path) -> None:
    open_database(path).dispose()
    for number in (MAX_ID_IN_FILE, 7):
        guard = CommitGuard(path, number, partial(int, number))
        guard.record_durable()
        guard.close()
        assert path.with_name(FILE_NAME).stat().st_size == 64
        expected = LastSeen(CommitCount(number, 1), number)
        assert read_last_seen(path.with_name(FILE_NAME)) == expected


@pytest.mark.case(31)
@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_database_that_is_not_there_any_more_takes_nothing(
    live: Callable[[int], Life], path: Path, tmp_path: Path, replaced: bool
) -> None:
    life = live(1)
    if replaced:
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").rename(path)
    else:
        path.unlink()
    assert "was removed or replaced" in life.refused("a")
    assert "a" not in life.meta()


HUGE = b"9" * 23
POISON = [b" ".join(each) for each in ((HUGE, b"1", b"5"), (b"1", HUGE, b"5"), (b"1", b"2", HUGE))]


@pytest.mark.parametrize(
    "content",
    [
        *POISON,
        b"1 99999 9223372036854775807",
        None,
        b"",
        b"1 2",
        b"1 2 x",
        b"\xff 1 2",
        b"-1 2 3",
        b"1 -2 3",
        b"1 2 -3",
    ],
)
def test_a_file_that_tells_nothing(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    assert read_last_seen(path) == LastSeen()


def test_a_line_that_comes_often_is_shown_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], []
    monkeypatch.setattr("pliant.server.support.log_setup.time.monotonic", lambda: now[0])
    seldom = RateLimitedLog(lambda text, cause: said.append(text % cause))
    for _ in range(121):
        seldom.log("no: %s", "full")
        now[0] += 0.5
    seldom.log("no: %s", "locked")
    seldom.reset()
    seldom.log("no: %s", "full")
    assert said == [
        "no: full",
        "no: full (119 more times since the last line)",
        "no: locked",
        "no: full",
    ]

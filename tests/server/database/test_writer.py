"""The job database: one writer, group commit, nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event

from pliant.core.commands import Note
from pliant.core.values.ids import JobId
from pliant.server.database import history_search
from pliant.server.database.database_errors import is_transient
from pliant.server.database.engine import DatabaseUnusableError, open_database, open_reader
from pliant.server.database.history_search import EventFilter
from pliant.server.database.reader import Reader
from pliant.server.database.statements import (
    add_barrier,
    add_note,
    drop_passed_barriers,
    put_meta,
)
from pliant.server.database.tables import HEAD, metadata
from pliant.server.database.writer import Writer, WriterStoppedError


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(tmp_path / "pliant.db")
    yield engine
    engine.dispose()


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    faults: list[str] = []
    writer = Writer(engine)
    writer.start(faults.append)
    yield writer
    writer.stop()
    assert faults == []


def values(path: Path) -> dict[str, str]:
    engine = open_reader(path)
    try:
        return Reader(engine).meta()
    finally:
        engine.dispose()


def test_many_writers_share_a_flush(writer: Writer, engine: Engine, tmp_path: Path) -> None:
    commits: list[Connection] = []
    event.listen(engine, "commit", commits.append)
    waiting = [writer.commit([put_meta(f"key{n}", str(n))]) for n in range(1000)]
    for future in waiting:
        future.result(10)
    assert len(values(tmp_path / "pliant.db")) == 1000
    assert len(commits) <= 100


def test_only_the_last_barrier_of_a_world_stays(writer: Writer, engine: Engine) -> None:
    for world, last in (("v", 1), ("w", 3)):
        for sequence in range(1, last + 1):
            changes = [add_barrier(world, sequence, {}), drop_passed_barriers(world, sequence)]
            writer.commit(changes).result(30)
    assert Reader(engine).barriers(["v", "w"]).keys() == {("v", 1), ("w", 3)}


def test_a_bad_change_fails_alone(writer: Writer, tmp_path: Path) -> None:
    good = put_meta("good", "1")
    bad = put_meta("bad", None)  # type: ignore[arg-type]
    results = [writer.commit(changes) for changes in ([good], [good, bad], [put_meta("z", "2")])]
    results[0].result(30)
    results[2].result(30)
    with pytest.raises(Exception, match="NOT NULL"):
        results[1].result(30)
    assert values(tmp_path / "pliant.db") == {"good": "1", "z": "2"}


def test_after_the_stop_nothing_is_taken(writer: Writer) -> None:
    last = writer.commit([put_meta("a", "1")])
    writer.stop()
    assert last.done()
    with pytest.raises(WriterStoppedError):
        writer.commit([put_meta("b", "2")]).result(1)


@pytest.mark.case(14)
def test_writers_wait_for_a_foreign_lock(writer: Writer, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "pliant.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    future = writer.commit([put_meta("a", "1")])
    time.sleep(0.2)
    assert not future.done()
    other.execute("COMMIT")
    other.close()
    future.result(10)


@pytest.mark.case(16)
def test_a_full_disk_is_reported_and_survived(engine: Engine, tmp_path: Path) -> None:
    # The file may not grow beyond its present size: to SQLite that is a full disk.
    full = ["PRAGMA max_page_count=1"]

    @event.listens_for(engine, "begin")
    def _limit(connection: Connection) -> None:
        for statement in full:
            connection.exec_driver_sql(statement)

    writer = Writer(engine)
    writer.start(print)
    try:
        lines = [put_meta(f"k{n}", "x" * 1000) for n in range(100)]
        with pytest.raises(Exception, match="disk is full"):
            writer.commit(lines).result(10)
        full[:] = ["PRAGMA max_page_count=1000000"]
        writer.commit(lines).result(10)
    finally:
        writer.stop()
    assert len(values(tmp_path / "pliant.db")) == 100


CHILD = """
import sys
from pathlib import Path
from pliant.server.database.engine import open_database
from pliant.server.database.writer import Writer
from pliant.core.commands import Note
from pliant.core.values.ids import JobId
from pliant.server.database.statements import add_note, put_meta
writer = Writer(open_database(Path(sys.argv[1])))
writer.start(print)
number = int(sys.argv[2])
while True:
    group = [writer.commit([put_meta(f"k{number + i}", "x")]) for i in range(7)]
    for place, future in enumerate(group):
        future.result()
        print(number + place, flush=True)
    number += 7
"""


@pytest.mark.cluster
def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "pliant.db"
    acknowledged: set[str] = set()
    for life in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), str(life * 1_000_000)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        timer = threading.Timer(0.1 + 0.05 * life, child.send_signal, [signal.SIGKILL])
        timer.start()
        lines += child.stdout.read().splitlines()
        child.wait(30)
        child.stdout.close()
        timer.join()
        acknowledged |= {f"k{line.strip()}" for line in lines if line.strip()}
    assert len(acknowledged) > 20
    engine = open_database(path)
    engine.dispose()
    assert acknowledged <= set(values(path))


# ------------------------------------------------------------------ opening


@pytest.mark.usefixtures("engine")
def test_the_file_is_private(tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "pliant.db").stat().st_mode) == 0o600


def test_settings_are_durable(engine: Engine) -> None:
    with engine.connect() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    assert settings == ["wal", 2, 10_000]


@pytest.mark.case(20)
def test_migrations_make_exactly_the_tables(engine: Engine, tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from pliant.server.database.migrations.run import newest, upgrade

    assert newest() == HEAD
    migrated = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    upgrade(migrated, HEAD)
    for each in (migrated, engine):
        with each.connect() as connection:
            context = MigrationContext.configure(connection)
            assert compare_metadata(context, metadata) == []
            assert context.get_current_revision() == HEAD
    migrated.dispose()


def test_a_new_and_a_current_database_need_no_alembic(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from pliant.server.database.engine import open_database\n"
        f"for _ in range(2): open_database(Path({str(tmp_path / 'pliant.db')!r})).dispose()\n"
        "assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.case(20)
def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pliant.db"
    open_database(path).dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(DatabaseUnusableError, match="made by a newer one"):
        open_database(path)


@pytest.mark.case(18)
@pytest.mark.parametrize("damage", ["header", "page"])
def test_a_damaged_database_is_refused_with_a_way_out(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "pliant.db"
    open_database(path).dispose()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(0 if damage == "header" else 4096)
        file.write(b"\0" * (4096 if damage == "page" else 100))
    assert path.stat().st_size == size
    with pytest.raises(DatabaseUnusableError, match="server --recover"):
        open_database(path)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusableError, match=f"{tmp_path}.*No such file"):
        open_database(tmp_path / "missing" / "pliant.db")


@pytest.mark.usefixtures("engine")
def test_readers_cannot_write(tmp_path: Path) -> None:
    reader = open_reader(tmp_path / "pliant.db")
    with reader.connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.exec_driver_sql("DELETE FROM meta")
    reader.dispose()
    assert os.path.exists(tmp_path / "pliant.db")


@pytest.mark.case(15)
def test_faults_that_pass_are_known(engine: Engine, writer: Writer, tmp_path: Path) -> None:
    with engine.connect() as connection:
        for statement, passes in (("SELECT * FROM nowhere", False), ("SELECT 1/", False)):
            with pytest.raises(Exception, match="OperationalError") as error:
                connection.exec_driver_sql(statement)
            assert is_transient(error.value) is passes
    with pytest.raises(Exception, match="NOT NULL") as refused:
        writer.commit([put_meta("bad", None)]).result(30)  # type: ignore[arg-type]
    assert not is_transient(refused.value)
    one, other = (sqlite3.connect(tmp_path / "pliant.db", timeout=0) for _ in range(2))
    one.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked") as locked:
        other.execute("BEGIN IMMEDIATE")
    assert is_transient(locked.value)
    one.close()
    other.close()


def test_history_is_read_in_pieces(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [add_note(Note(n / 10, f"test.{n % 4}", str(n), JobId(n % 2))) for n in range(1, 9)]
    writer.commit(lines).result(30)
    monkeypatch.setattr("pliant.server.database.reader.MAX_HISTORY_LINES", 3)
    engine = open_reader(tmp_path / "pliant.db")
    reader = Reader(engine)

    def read(job: int | None = None, **part: Any) -> str:
        return "".join(line["text"] for line in reader.history(job, **part))

    assert (read(), read(0), read(1)) == ("678", "468", "357")
    assert (read(after=1), read(after=6), read(limit=2), read(limit=99)) == (
        ("234", "78", "12", "123")
    )
    assert (read(after=1, last=3), read(kinds=["test.1", "test.2"])) == ("23", "256")
    assert read(after=reader.event_before(0.5)) == "567"
    assert [reader.event_before(time) for time in (0.0, 0.1, 0.15, 0.8, 9.0)] == [0, 0, 1, 7, 8]

    monkeypatch.setattr(history_search, "AT_ONCE", 2)
    monkeypatch.setattr(history_search, "MAX_HISTORY_LINES", 3)

    def newest(**wanted: Any) -> tuple[str, bool]:
        lines, complete = asyncio.run(history_search.newest_events(reader, EventFilter(**wanted)))
        return "".join(line["text"] for line in lines), complete

    def first(*range_: Any, **wanted: Any) -> tuple[str, int | None]:
        lines, following = asyncio.run(
            history_search.events_after(reader, EventFilter(**wanted), *range_)
        )
        return "".join(line["text"] for line in lines), following

    assert (newest(), newest(job=1)) == (("678", False), ("357", False))
    assert newest(kinds=["test.1"]) == ("15", True)
    assert newest(kinds=["test.9"]) == ("", True)
    assert newest(until=0.2) == ("12", True)
    assert first(0, 3, None) == ("123", 3)
    assert first(6, 3, None) == ("78", None)
    assert first(0, 3, 0.6) == ("678", None)
    assert first(0, 1, None, kinds=["test.1"]) == ("1", 1)
    assert first(1, 1, None, kinds=["test.1"]) == ("5", 5)
    assert first(5, 1, None, kinds=["test.1"]) == ("", None)
    assert first(0, 2, None, job=0, until=0.6) == ("24", 4)
    monkeypatch.setattr(history_search, "SEARCH_S", 0.0)
    assert first(3, 3, None) == ("", 3)
    reader.close()
    engine.dispose()

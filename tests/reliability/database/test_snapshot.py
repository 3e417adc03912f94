"""Case 15: transactions that begin as reads while somebody else writes: no user hears of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pliant.server.database.engine import open_database
from serverkit import Server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

JOBS = 40
WRITES = 40
#: Commits one small change after the other until its input ends; who finds the database locked and
#: leaves the waiting to SQLite waits ever longer and hardly gets a turn beside a server at work.
BUSY = """
import select, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
count = 1
while not select.select([sys.stdin], [], [], 0.001)[0]:
    try:
        database.execute("INSERT OR REPLACE INTO meta VALUES ('foreign', ?)", (str(count),))
        count += 1
    except sqlite3.OperationalError:
        pass
"""


@contextmanager
def busy(path: Path) -> Iterator[None]:
    """Have another process write all the time."""
    words = [sys.executable, "-c", BUSY, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as writer:
        yield
        assert writer.poll() is None
        assert writer.stdin is not None
        writer.stdin.close()


def writes(path: Path) -> int:
    """How often the other process has written so far."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        row = database.execute("SELECT value FROM meta WHERE key = 'foreign'").fetchone()
    return 0 if row is None else int(row[0])


@pytest.mark.case(15)
def test_users_hear_nothing_of_others_who_write(state_dir: Path) -> None:
    server = Server(state_dir.parent).start()
    node = server.controller().welcome()
    path = server.state / "pliant.db"
    jobs: list[int] = []
    try:
        with busy(path), server.user() as user:
            while len(jobs) < JOBS or writes(path) < WRITES:
                jobs.append(user.submit(hold=True))
                user.do("cancel", ids=jobs[-1:])
                assert user.job(jobs[-1])["state"] == "CANCELLED"
    finally:
        node.close()
        assert server.stop() == 0
    assert jobs == list(range(1, len(jobs) + 1))
    assert "WARNING" not in server.log()
    assert "ERROR" not in server.log()


@pytest.mark.case(15)
def test_a_transaction_that_reads_first_may_still_write(tmp_path: Path) -> None:
    """The same on a plain connection fails at once, whatever the timeout."""
    path = tmp_path / "pliant.db"
    engine = open_database(path)
    with (
        closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as plain,
        closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other,
    ):
        plain.execute("BEGIN")
        plain.execute("SELECT * FROM meta").fetchall()
        other.execute("INSERT INTO meta VALUES ('a', '1')")
        with pytest.raises(sqlite3.OperationalError) as raised:
            plain.execute("INSERT INTO meta VALUES ('b', '1')")
        assert raised.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
        plain.execute("ROLLBACK")
        with engine.begin() as ours:
            ours.exec_driver_sql("SELECT * FROM meta").fetchall()
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("INSERT INTO meta VALUES ('c', '1')")
            ours.exec_driver_sql("INSERT INTO meta VALUES ('b', '1')")
        assert {row[0] for row in other.execute("SELECT key FROM meta")} == {"a", "b"}
    engine.dispose()

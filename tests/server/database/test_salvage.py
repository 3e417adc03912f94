"""``pliant server --recover`` touches a database only if something of it is damaged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pliant.server.daemon import main
from pliant.server.database.engine import open_database
from pliant.server.database.salvage import is_intact

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database with texts that are longer than a page, closed."""
    path = tmp_path / "pliant.db"
    open_database(path).dispose()
    with closing(sqlite3.connect(path)) as connection:
        rows = [(f"key {number}", "x" * 3 * PAGE) for number in range(20)]
        connection.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", rows)
        connection.commit()
    return path


def recover(path: Path) -> int:
    return main(["--recover", "--state-dir", str(path.parent), "--run-dir", str(path.parent)])


def test_a_good_database_is_left_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    assert recover(path) == 0
    assert capsys.readouterr().out.startswith(f"{path} is good: there is nothing to recover")
    assert path.read_bytes() == before
    assert [found.name for found in path.parent.glob("pliant.db*")] == ["pliant.db"]


def test_what_is_only_in_the_log_is_looked_at_too(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO meta (key, value) VALUES ('more', '1')")
        connection.commit()
        assert path.with_name("pliant.db-wal").stat().st_size
        assert is_intact(path)


def test_a_zeroed_page_within_a_text_is_damage(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray(path.read_bytes())
    place = content.index(b"x" * (PAGE - 4))  # a page that a long text goes on in
    content[place : place + PAGE - 4] = bytes(PAGE - 4)
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert recover(path) == 0
    assert "the damaged file is kept as" in capsys.readouterr().out
    assert is_intact(path)


def test_a_database_that_is_not_there_is_not_made(path: Path) -> None:
    path.unlink()
    assert recover(path) == 1
    assert not path.exists()

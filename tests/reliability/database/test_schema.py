"""Case 20: who is killed while tables are made or changed leaves the old ones or the new ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pliant.server.database.engine import open_database
from pliant.server.database.tables import HEAD
from testkit.processes import run_python

#: A version that comes after HEAD, in several steps, one of which changes what is stored.
NEXT = f'''
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9001", "{HEAD}", None, None


def upgrade():
    op.create_table("new", sa.Column("key", sa.Text, primary_key=True))
    op.add_column("meta", sa.Column("more", sa.Text))
    op.execute("UPDATE meta SET more = value || '!'")
    op.create_index("meta_by_more", "meta", ["more"])
'''
#: Opens a copy of a database again and again; the process dies in the first statement, then in the
#: second, and so on, until one lives. Prints how many died. All are forks, with the imports done.
DIE = """
import os, shutil, signal, sys
from pathlib import Path

import alembic.command, alembic.script
from sqlalchemy import Engine, event

from pliant.server.database import engine as module
from pliant.server.database.migrations import run

folder, head, scripts = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
module.HEAD = head
if scripts:
    plain = run.alembic_config
    def with_scripts():
        config = plain()
        config.set_main_option("script_location", scripts)
        return config
    run.alembic_config = with_scripts

def die_in(turn, path):
    left = [turn]
    def step(*_):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    def statement(connection, cursor, text, *_):
        if text.lstrip().split()[0] in ("CREATE", "INSERT", "ALTER", "UPDATE", "DROP"):
            step()
    event.listen(Engine, "after_cursor_execute", statement)
    event.listen(Engine, "commit", step)
    module.open_database(path)
    os._exit(0)

turn = 0
while True:
    turn += 1
    path = folder / f"{turn}.db"
    if (folder / "before.db").exists():
        shutil.copy(folder / "before.db", path)
    child = os.fork()
    if child == 0:
        try:
            die_in(turn, path)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != -signal.SIGKILL:
        print(turn - 1, code)
        break
"""


def killed(folder: Path, head: str = HEAD, scripts: Path | str = "") -> Iterator[Path]:
    """Return the databases of those that were killed, one for each step."""
    turns, code = map(int, run_python("-c", DIE, str(folder), head, str(scripts)).stdout.split())
    assert code == 0, "the last one was to be done"
    return (folder / f"{turn}.db" for turn in range(1, turns + 1))


def schema(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {row[0] for row in connection.execute("SELECT sql FROM sqlite_master") if row[0]}


def version(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Return a database of this version with something in it."""
    path = tmp_path / "before.db"
    open_database(path).dispose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO meta VALUES ('cluster', 'c')")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.mark.case(20)
def test_tables_are_made_at_once_or_not_at_all(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    open_database(whole).dispose()
    found = [schema(path) for path in killed(tmp_path)]
    assert len(found) > 10, "each table, index and the version are steps"
    assert all(each in (set(), schema(whole)) for each in found)
    assert found[0] == set()
    for turn in (1, len(found)):
        open_database(tmp_path / f"{turn}.db").dispose()
        assert schema(tmp_path / f"{turn}.db") == schema(whole)


@pytest.mark.case(20)
def test_tables_are_changed_at_once_or_not_at_all(before: Path, tmp_path: Path) -> None:
    scripts = tmp_path / "migrations"
    from pliant.server.database import migrations

    source = Path(migrations.__file__).parent
    (scripts / "versions").mkdir(parents=True)
    for file in (*source.glob("*.py"), *source.glob("versions/0*.py")):
        (scripts / file.relative_to(source)).write_text(file.read_text())
    (scripts / "versions" / "9001_next.py").write_text(NEXT)
    old, found = schema(before), list(killed(tmp_path, "9001", scripts))
    assert len(found) >= 6
    assert {version(path) for path in found} <= {HEAD, "9001"}
    for path in found:
        assert (schema(path) == old) == (version(path) == HEAD)
        with closing(sqlite3.connect(path)) as connection:
            row = connection.execute("SELECT * FROM meta").fetchone()
        assert row == (("cluster", "c") if version(path) == HEAD else ("cluster", "c", "c!"))
    assert version(found[0]) == HEAD

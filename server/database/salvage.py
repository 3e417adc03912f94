"""``pliant server --recover``: copy the readable rows of a damaged job database into a new one.

The command ``.recover`` of SQLite needs an extension that distributions leave out. This module uses
the order of the rows instead: after a page that cannot be read, it searches for the next readable
row by its number.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pliant.server.database import row_codecs
from pliant.server.database.engine import open_database
from pliant.server.database.meta_keys import LAST_JOB_ID, MAX_ID, find_invalid
from pliant.server.database.tables import metadata

#: Row numbers have at most this many bits.
MAX_ROWID_BITS = 40
_MAGIC = b"SQLite format 3\0"
_PAGE = 4096
#: First bytes of a page that begins the list of tables: a leaf, or an inner page.
_OF_A_TREE = (5, 13)


class Recovered(NamedTuple):
    """The result of a recovery: the new path of the damaged file, numbers of rows, and messages."""

    #: The path of the damaged file after the recovery.
    kept: Path
    #: How many rows of each table were read.
    rows: dict[str, int]
    #: Sentences about damaged rows: rebuilt or left out.
    told: list[str]


class _Damaged(NamedTuple):
    """A row with a damaged column, which is rebuilt or left out."""

    table: str
    row: row_codecs.Row
    #: A sentence about it: rebuilt or left out.
    line: str


def recover(path: Path) -> Recovered:
    """Replace a database by a new one with its readable rows; return a summary.

    The damaged file is kept under another name. No other process may have the database open.

    Raises:
        DatabaseUnusableError: if the new database cannot be created.
        OSError: if a file cannot be read or written.
        sqlite3.Error: if the new database cannot be written.
    """
    fresh, copy = (path.with_name(f"{path.name}.{what}") for what in ("recovered", "copy"))
    for file in (*_files_of(fresh), *_files_of(copy)):
        file.unlink(missing_ok=True)
    open_database(fresh).dispose()
    _copy_with_valid_header(path, copy, fresh.read_bytes())
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(fresh)) as target:
        damaged: list[_Damaged] = []
        found = {table: _read(source, target, table, damaged) for table in metadata.tables}
        _delete_orphans(target)
        target.executemany(
            "DELETE FROM meta WHERE key = ?", [(key,) for key in _invalid_meta_keys(target)]
        )
        _reserve_job_ids(target, [row["id"] for table, row, _ in damaged if table == "job"])
        target.commit()
    for file in _files_of(copy):
        file.unlink(missing_ok=True)
    return Recovered(_replace_file(path, fresh), found, [line for *_, line in damaged])


def is_intact(path: Path) -> bool:
    """Return whether a database is undamaged; the check does not change it.

    A database is undamaged if SQLite finds no fault, every row can be read and holds no zeroed
    page, and the table ``meta`` and all JSON columns are valid.
    """
    try:
        with closing(_open_read_only(path)) as source:
            if source.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                return False
            tables = {name for (name,) in source.execute("SELECT name FROM sqlite_master")}
            return (
                "alembic_version" in tables
                and all(_reads_all(source, table) for table in tables.intersection(metadata.tables))
                and not _invalid_meta_keys(source)
            )
    except (sqlite3.Error, row_codecs.UnreadableRowError):
        return False


def _open_read_only(path: Path) -> sqlite3.Connection:
    # Without ``immutable`` SQLite would create a log, which a read-only connection cannot remove.
    how = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{how}", uri=True)


def _invalid_meta_keys(source: sqlite3.Connection) -> list[str]:
    """Return those keys of the table ``meta`` that have invalid values."""
    return find_invalid(dict(source.execute("SELECT key, value FROM meta")))


def _reads_all(source: sqlite3.Connection, table: str) -> bool:
    (number,) = source.execute(f'SELECT count(*) FROM "{table}"').fetchone()
    for row in _rows(source, table):
        row_codecs.check_row(table, row)
        number -= 1
    return bool(number == 0)


def _files_of(path: Path) -> list[Path]:
    """Return the paths of a database, of its write-ahead log and of the log's index."""
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]


def _copy_with_valid_header(path: Path, copy: Path, fresh: bytes) -> None:
    """Copy a damaged database and its write-ahead log, with a valid header.

    A damaged header or first page is replaced by that of ``fresh``, an empty database of the same
    schema.
    """
    content = bytearray(path.read_bytes())
    content += bytes(max(-len(content) % _PAGE, _PAGE - len(content)))
    if content[100] not in _OF_A_TREE:
        content[:_PAGE] = fresh[:_PAGE]
    if content[:16] != _MAGIC:
        content[:100] = fresh[:100]
    content[28:32] = (len(content) // _PAGE).to_bytes(4, "big")
    content[32:40] = bytes(8)  # no free pages
    content[92:96] = content[24:28]  # else SQLite ignores the number of pages
    _write_private(copy, content)
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        _write_private(copy.with_name(f"{copy.name}-wal"), log.read_bytes())


def _write_private(path: Path, content: bytes | bytearray) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _read(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, damaged: list[_Damaged]
) -> int:
    """Copy the readable rows of a table to another database; return how many were copied."""
    names = [column.name for column in metadata.tables[table].columns]
    places = ", ".join("?" * len(names))
    insert = f'INSERT OR IGNORE INTO "{table}" ({_listed(names)}) VALUES ({places})'
    count = 0
    for found in _rows(source, table):
        row: row_codecs.Row | None = found
        try:
            row_codecs.check_row(table, found)
        except row_codecs.UnreadableRowError as error:
            row = row_codecs.rebuild(table, found)
            line = f"{'mended' if row else 'set aside'}: {error}"
            damaged.append(_Damaged(table, found, line))
        if row is not None:
            count += target.execute(insert, tuple(row.values())).rowcount
    return count


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _rows(source: sqlite3.Connection, table: str) -> Iterator[row_codecs.Row]:
    """Yield the readable rows of a table, with one query for each.

    A longer query reads ahead, and would lose the row before a damaged page.
    """
    names = [column.name for column in metadata.tables[table].columns]
    select = f'SELECT rowid, {_listed(names)} FROM "{table}" WHERE rowid > ? ORDER BY rowid LIMIT 1'
    last: int | None = 0
    while last is not None:
        try:
            row = _next(source, select, last)
        except sqlite3.DatabaseError:
            last = _next_readable(source, select, last)
            continue
        if row is None:
            return
        last, *values = row
        # SQLite does not detect a zeroed page inside a long text.
        if not any(isinstance(value, str) and "\0" in value for value in values):
            yield dict(zip(names, values, strict=True))


def _next(source: sqlite3.Connection, select: str, last: int) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = source.execute(select, (last,)).fetchone()
    if row is not None and row[0] <= last:  # part of a page is zero
        raise sqlite3.DatabaseError("rows are out of order")
    return row


def _next_readable(source: sqlite3.Connection, select: str, last: int) -> int | None:
    """Skip rows that cannot be read: return the row number after which reading can continue.

    None if no row after row ``last`` can be read.
    """
    for power in range(MAX_ROWID_BITS):
        if _readable(source, select, last + (1 << power)):
            break
    else:
        return None
    low, high = last + (1 << power) // 2, last + (1 << power)
    while high - low > 1:
        middle = (low + high) // 2
        if _readable(source, select, middle):
            high = middle
        else:
            low = middle
    return high


def _readable(source: sqlite3.Connection, select: str, last: int) -> bool:
    try:
        _next(source, select, last)
    except sqlite3.DatabaseError:
        return False
    return True


def _delete_orphans(target: sqlite3.Connection) -> None:
    """Delete the worlds, exits, barriers and steps of jobs that the new database does not have.

    The number of a job that could not be read is unknown, so a new job may get the same number.
    """
    target.execute("DELETE FROM world WHERE job NOT IN (SELECT id FROM job)")
    for table in ("rank_exit", "fence", "step"):
        target.execute(f"DELETE FROM {table} WHERE world NOT IN (SELECT name FROM world)")


def _reserve_job_ids(target: sqlite3.Connection, jobs: Sequence[int]) -> None:
    """Make sure that no new job gets the number of a job that was left out as damaged.

    The damaged jobs still have events, and perhaps processes.
    """
    known = dict(target.execute("SELECT key, value FROM meta WHERE key = ?", [LAST_JOB_ID]))
    if given := [number for number in jobs if number <= MAX_ID]:
        last = max(*given, int(known.get(LAST_JOB_ID, "0")))
        target.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (LAST_JOB_ID, str(last)))


def _replace_file(path: Path, fresh: Path) -> Path:
    """Put the new database in place of the old one; return where the old one is now."""
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged{number}")).exists():
        number += 1
    os.link(path, kept)
    for old, new in zip(_files_of(path)[1:], _files_of(kept)[1:], strict=True):
        if old.exists():
            old.rename(new)
    fresh.replace(path)
    return kept

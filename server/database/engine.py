"""Open the database: set durability, check the file, migrate the schema."""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from pliant.core.state.json_records import NewerRecordError
from pliant.core.support.base_error import PliantError
from pliant.faults import active, before_write
from pliant.protos.daemons.atomic_files import describe_unusable
from pliant.server.database.database_errors import (
    disk_full_error,
    is_disk_full,
    is_locked,
    sqlite_message,
)
from pliant.server.database.meta_keys import find_invalid
from pliant.server.database.row_codecs import UnreadableRowError
from pliant.server.database.tables import HEAD, metadata

#: A write waits this long while another process has the database locked, seconds.
LOCK_TIMEOUT_S = 10.0


_CHANGES = ("INSERT", "UPDATE", "DELETE")


class DatabaseUnusableError(PliantError):
    """The server must not start with this database. The message has the reason and a remedy."""


def open_database(path: Path, *, locked_s: float = LOCK_TIMEOUT_S, known: bool = False) -> Engine:
    """Open or create the database for its one writer.

    Args:
        path: the file.
        locked_s: a write waits this long while another process has the database locked.
        known: whether this cluster already had a database, so that an empty one is refused.

    Raises:
        DatabaseUnusableError: if it is damaged, not writable, or made by a newer version.
    """
    _create_private(path)
    engine = _engine(path, "BEGIN IMMEDIATE", locked_s)
    if active():
        event.listen(engine, "do_execute", _writing)
        event.listen(engine, "do_executemany", _writing)
    try:
        with engine.connect() as connection:
            _check(connection, path)
        _bring_up_to_date(engine, path, known=known)
    except DatabaseError as error:
        engine.dispose()
        raise unusable_error(path, error) from error
    except DatabaseUnusableError:
        engine.dispose()
        raise
    return engine


def check_values(path: Path, meta: Mapping[str, str]) -> None:
    """Check the values of the table ``meta`` (keys and counters of the server) before their use.

    Raises:
        DatabaseUnusableError: if one of them cannot have been stored by a server.
    """
    for key in find_invalid(meta):
        raise DatabaseUnusableError(
            f"{path} is damaged: {key} in table meta is {meta[key]!r:.60}; {_recovery(path)}"
        )


def unusable_error(path: Path, error: BaseException) -> DatabaseUnusableError:
    """Return the error to raise if a server cannot start with a database; it names a remedy.

    Args:
        path: the file.
        error: the error of SQLite, SQLAlchemy or the parser of a row.
    """
    if isinstance(error, UnreadableRowError):
        return DatabaseUnusableError(f"{path} is damaged: {error}; {_recovery(path)}")
    if isinstance(error, NewerRecordError):
        return DatabaseUnusableError(
            f"{path}: {error}: it was made by a newer Pliant; start that one, nothing was changed"
        )
    if is_locked(error):
        return DatabaseUnusableError(
            f"{path}: another process has it locked; end that one (fuser {path})"
        )
    if is_disk_full(error, path.parent):
        return no_space_error(path.parent)
    return DatabaseUnusableError(f"{path}: {sqlite_message(error)}; {_recovery(path)}")


def no_space_error(folder: Path) -> DatabaseUnusableError:
    """Return the error to raise if a server starts on a full disk."""
    return DatabaseUnusableError(
        f"no room on the device of {folder}: make room there, then start again"
    )


def checkpoint(engine: Engine) -> None:
    """Move all commits from the write-ahead log into the database file."""
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def open_reader(path: Path) -> Engine:
    """Return an engine whose connections cannot write and never wait for the writer."""
    engine = _engine(path, "BEGIN", LOCK_TIMEOUT_S)

    @event.listens_for(engine, "connect")
    def _read_only(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        connection.execute("PRAGMA query_only=ON")

    return engine


def _create_private(path: Path) -> None:
    """Create the database file if it is missing, and let only its owner read and write it.

    It holds the environments of jobs and the keys of the server.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise DatabaseUnusableError(describe_unusable(error)) from None


def _engine(path: Path, begin: str, locked_s: float) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=QueuePool,
        pool_size=2,
        connect_args={"check_same_thread": False, "timeout": locked_s},
    )

    @event.listens_for(engine, "connect")
    def _settings(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        # The driver begins transactions late. Each one is begun explicitly instead, see _begin.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA busy_timeout={round(locked_s * 1000)}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _writing(_cursor: object, statement: str, *_others: object) -> None:
    """Raise the error of a full disk before a write, if a fault test has ordered that."""
    if statement.startswith(_CHANGES):
        try:
            before_write()
        except OSError as error:
            raise disk_full_error() from error


def _check(connection: Connection, path: Path) -> None:
    """Run SQLite's quick check on the database before anything is written.

    The check does not find a page of zeros inside a long text.

    Raises:
        DatabaseUnusableError: the check has found damage.
    """
    found = [row[0] for row in connection.exec_driver_sql("PRAGMA quick_check(5)")]
    if found != ["ok"]:
        raise DatabaseUnusableError(f"{path} is damaged: {found[0]}; {_recovery(path)}")


def _recovery(path: Path) -> str:
    folder = shlex.quote(str(path.parent))
    return f"recover what can be read with: pliant server --recover --state-dir {folder}"


def _bring_up_to_date(engine: Engine, path: Path, *, known: bool) -> None:
    with engine.connect() as connection:
        tables = inspect(connection).get_table_names()
        version = None
        if "alembic_version" in tables:
            version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if version == HEAD:
        return
    if version is None and "job" in tables:
        raise DatabaseUnusableError(f"{path} has tables but no version: not a Pliant database")
    if known and version is None:
        raise DatabaseUnusableError(
            f"{path} is empty, but {path.parent} had a cluster: put a copy of the database back, "
            "or remove node.secret there to start a new cluster"
        )
    if not tables:
        _create_tables(engine)
        return
    from pliant.server.database.migrations.run import UnknownVersionError, upgrade

    try:
        upgrade(engine, HEAD)
    except UnknownVersionError:
        raise DatabaseUnusableError(
            f"{path} has version {version}, which this Pliant (version {HEAD}) does not know: "
            "it was made by a newer one"
        ) from None


def _create_tables(engine: Engine) -> None:
    """Create the tables of the newest version in one transaction.

    A new database needs no migrations, so it does not need the import of Alembic, which took a
    fifth of the server's start.
    """
    with engine.begin() as connection:
        metadata.create_all(connection, checkfirst=False)
        connection.exec_driver_sql(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (HEAD,))

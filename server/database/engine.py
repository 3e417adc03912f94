"""Opening the database: durable settings, a check of the file, the schema brought up to date."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from pliant.server.database.tables import HEAD

BUSY_TIMEOUT_MS = 10_000


class DatabaseUnusableError(Exception):
    """The server must not start on this file; the message says why and what to do."""


def open_database(path: Path) -> Engine:
    """Open or create the database for its one writer.

    Raises:
        DatabaseUnusableError: damaged, not ours to write, or made by a newer version.
    """
    _create_private(path)
    engine = _engine(path, begin="BEGIN IMMEDIATE")
    try:
        with engine.connect() as connection:
            _check(connection, path)
        _bring_up_to_date(engine, path)
    except DatabaseError as error:
        engine.dispose()
        raise DatabaseUnusableError(f"{path}: {error.orig}; {_recovery(path)}") from error
    except DatabaseUnusableError:
        engine.dispose()
        raise
    return engine


def open_reader(path: Path) -> Engine:
    """Return an engine whose connections cannot write and never wait for the writer."""
    engine = _engine(path, begin="BEGIN")

    @event.listens_for(engine, "connect")
    def _read_only(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        connection.execute("PRAGMA query_only=ON")

    return engine


def _create_private(path: Path) -> None:
    """The database holds environments and keys of users: nobody else reads it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise DatabaseUnusableError(f"{path}: {error.strerror}") from None


def _engine(path: Path, begin: str) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=QueuePool,
        pool_size=2,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _settings(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        # The driver would begin late; we say ourselves when a transaction begins, and how.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _check(connection: Connection, path: Path) -> None:
    """SQLite goes on happily with a zeroed page: ask before anything is written."""
    found = [row[0] for row in connection.exec_driver_sql("PRAGMA quick_check(5)")]
    if found != ["ok"]:
        raise DatabaseUnusableError(f"{path} is damaged: {found[0]}; {_recovery(path)}")


def _recovery(path: Path) -> str:
    return (
        f"recover what can be read with: sqlite3 {path} .recover | sqlite3 {path}.recovered, "
        "then put that file in its place"
    )


def _bring_up_to_date(engine: Engine, path: Path) -> None:
    with engine.connect() as connection:
        tables = inspect(connection).get_table_names()
        version = None
        if "alembic_version" in tables:
            version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if version == HEAD:
        return
    if version is None and "job" in tables:
        raise DatabaseUnusableError(f"{path} has tables but no version: not a Pliant database")
    from pliant.server.migrations.run import UnknownVersionError, upgrade

    try:
        upgrade(engine, HEAD)
    except UnknownVersionError:
        raise DatabaseUnusableError(
            f"{path} has version {version}, which this Pliant (version {HEAD}) does not know: "
            "it was made by a newer one"
        ) from None

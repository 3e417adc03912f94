"""Restore the state of a server from a backup.

The restored server does not know jobs that were started after the backup. Nodes know them, and they
refuse a server whose generation (the number of its start) is lower than that of the last server
they obeyed, or the same. So the restored server continues with a generation that the original
server never had. It also skips numbers of jobs and runs, as after any return to an older copy of
the database.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pliant.protos.daemons.atomic_files import sync_folder, write_private
from pliant.server.backup.create import (
    CONFIGURATION,
    DATABASE,
    FORMAT,
    IDENTITY,
    MANIFEST,
    STATE,
    BackupError,
)
from pliant.server.database.generation import FILE_NAME as GENERATION
from pliant.server.database.generation import write_last_generation
from pliant.server.database.replaced_database_check import FILE_NAME as COMMITS
from pliant.server.folder_locks import ServerLock

#: Starts of the original since the backup: so many, and one in each minute. Nodes refuse a server
#: whose generation is 100000 ahead.
_STARTS, _MAX_STEP = 1000, 90_000
_REPLACED = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", COMMITS, GENERATION, IDENTITY)


def read_backup(file: Path) -> tuple[Mapping[str, Any], Mapping[str, bytes]]:
    """Return the manifest of a backup and the contents of its files by name; check the digests.

    Raises:
        BackupError: the file is no backup, is damaged, or has a newer format.
        OSError: the file cannot be read.
    """
    try:
        with tarfile.open(file, "r:") as archive:
            contents = {}
            for member in archive:
                data = archive.extractfile(member)
                if data is None or _is_outside(member.name):
                    raise BackupError(f"{file}: {member.name!r:.100} does not belong in a backup")
                contents[member.name] = data.read()
        manifest = json.loads(contents.pop(MANIFEST))
        files, number = dict(manifest["files"]), manifest["format"]
        is_usable = type(number) is int and f"{STATE}/{DATABASE}" in files
        int(manifest["generation"]), float(manifest["made"])
    except (tarfile.TarError, ValueError, LookupError, TypeError) as error:
        raise BackupError(f"{file} is not a backup of Pliant, or it is damaged: {error}") from None
    if not is_usable:
        raise BackupError(f"{file} is not a backup of Pliant")
    if number > FORMAT:
        raise BackupError(f"{file} has format {number}: restore it with a newer version of Pliant")
    for name, digest in files.items():
        if hashlib.sha256(contents.get(name, b"")).hexdigest() != digest:
            raise BackupError(f"{file} is damaged: {name} is not what was saved; use another one")
    return manifest, {name: contents[name] for name in files}


def restore_backup(
    file: Path, state: Path, *, replace: bool = False, clock: Callable[[], float] = time.time
) -> tuple[Mapping[str, Any], Path | None]:
    """Write the state folder of a server from a backup.

    Args:
        file: the backup.
        state: the state folder. Files in it that are not part of a server's state are kept.
        replace: whether an existing state may be moved aside.
        clock: returns seconds since the epoch.

    Returns:
        The manifest, and the folder to which an earlier state was moved; None if there was none.

    Raises:
        BackupError: the backup is unusable, or there is a state and ``replace`` is not set.
        AlreadyRunningError: a server uses the folder.
        OSError: a file cannot be written.
    """
    manifest, contents = read_backup(file)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = ServerLock(state / "server.lock")
    lock.acquire()
    try:
        there = [state / name for name in _REPLACED if (state / name).exists()]
        if there and not replace:
            raise BackupError(
                f"{state} has the state of a server ({there[0].name}); name another folder, or "
                "move that state aside with --replace"
            )
        kept = _move_aside(there, state, clock) if there else None
        # First: without it, a server that starts now would use numbers of the original again.
        write_last_generation(state / GENERATION, str(_next_generation(manifest, clock())))
        # The database last: before it is there, a server that starts finds that it is missing.
        for name in sorted(contents, key=lambda name: name == f"{STATE}/{DATABASE}"):
            place = PurePosixPath(name)
            if place.parts[0] == STATE and place.name != GENERATION:
                path = state / place.relative_to(STATE)
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private(path, contents[name])
        sync_folder(state)
    finally:
        lock.release()
    return manifest, kept


def restore_configuration(contents: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write the configuration files of a backup into a folder, and return their paths.

    Args:
        contents: all files of the backup, by their names in it. Files that are no configuration,
            such as the database, are ignored.
        folder: the folder, which is created if it is missing.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = []
    for name, data in contents.items():
        if PurePosixPath(name).parts[0] == CONFIGURATION:
            write_private(folder / PurePosixPath(name).name, data)
            written.append(folder / PurePosixPath(name).name)
    return written


def _next_generation(manifest: Mapping[str, Any], now: float) -> int:
    minutes = max(0, int(now - float(manifest["made"])) // 60)
    return int(manifest["generation"]) + min(_STARTS + minutes, _MAX_STEP)


def _move_aside(there: list[Path], state: Path, clock: Callable[[], float]) -> Path:
    stamp = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(clock()))
    kept = state / f"before-restore-{stamp}"
    kept.mkdir(mode=0o700)
    for path in there:
        path.rename(kept / path.name)
    return kept


def _is_outside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    if name == MANIFEST:
        return False
    return len(parts) < 2 or parts[0] not in (STATE, CONFIGURATION) or ".." in parts

"""Write a backup of a server, which may be running.

A backup is a tar file. Its first member, ``manifest.json``, lists the other files with their
digests. These files are below ``state`` and ``configuration``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pliant import __version__
from pliant.core.support.base_error import PliantError
from pliant.protos.daemons.atomic_files import sync_folder
from pliant.server.authentication.cluster_secret import FILE_NAME as SECRET
from pliant.server.database.generation import FILE_NAME as GENERATION

#: Format of the file. A newer one is refused by older versions.
FORMAT = 1
MANIFEST, STATE, CONFIGURATION = "manifest.json", "state", "configuration"
DATABASE, IDENTITY = "pliant.db", "identity"
#: What a backup does not hold, for administrators.
LEFT_OUT = (
    "checkpoints",
    "logs",
    "output of jobs",
    "keys and running jobs of nodes, which are on the nodes",
)


class BackupError(PliantError):
    """A backup cannot be written, read or restored; the message has the reason and the remedy."""


def create_backup(
    file: Path, state: Path, configuration: list[Path], clock: Callable[[], float] = time.time
) -> Mapping[str, Any]:
    """Write a backup.

    Args:
        file: path of the backup. It gets mode 0600, and appears only when it is complete.
        state: the state folder of the server.
        configuration: configuration files to include.
        clock: returns seconds since the epoch.

    Returns:
        The manifest: versions, time, cluster, generation, and the digest of each file.

    Raises:
        BackupError: there is no job database, or it is damaged.
        OSError: a file cannot be read or written.
    """
    if not (state / DATABASE).is_file():
        raise BackupError(f"{state} has no job database; name the state folder (--state-dir)")
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=file.absolute().parent) as folder:
        copy = Path(folder) / DATABASE
        meta = _copy_database(state / DATABASE, copy)
        found = {f"{STATE}/{DATABASE}": copy}
        small = [state / SECRET, state / GENERATION, *sorted((state / IDENTITY).rglob("*"))]
        for path in small:
            if path.is_file() and not path.is_symlink():
                found[f"{STATE}/{path.relative_to(state)}"] = path
        found |= {f"{CONFIGURATION}/{path.name}": path for path in configuration}
        contents = {name: path.read_bytes() for name, path in found.items()}
        manifest = {
            "format": FORMAT,
            "pliant": __version__,
            "made": clock(),
            "cluster": meta.get("cluster", ""),
            "generation": int(meta.get("generation", "0")),
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
            "configuration": {f"{CONFIGURATION}/{path.name}": str(path) for path in configuration},
        }
        draft = Path(folder) / "backup"
        _write(draft, {MANIFEST: json.dumps(manifest, indent=1).encode(), **contents})
        draft.replace(file)
    sync_folder(file.absolute().parent)
    return manifest


def _copy_database(path: Path, copy: Path) -> dict[str, str]:
    """Copy a consistent snapshot of the database, even if a server is writing to it.

    Return the keys and values of its table ``meta``.
    """
    try:
        with (
            closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            # One file: the copy needs no write-ahead log.
            target.execute("PRAGMA journal_mode = DELETE")
            (state,) = target.execute("PRAGMA quick_check").fetchone()
            if state != "ok":
                raise BackupError(f"{path} is damaged ({state}); run `pliant server --recover`")
            return dict(target.execute("SELECT key, value FROM meta"))
    except sqlite3.Error as error:
        raise BackupError(f"{path} cannot be copied: {error}") from None


def _write(path: Path, contents: Mapping[str, bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, data in contents.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o600
                archive.addfile(member, io.BytesIO(data))
        file.flush()
        os.fsync(file.fileno())

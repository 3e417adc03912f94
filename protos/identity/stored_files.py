"""Lock private files, and replace several together, even if the process is killed meanwhile.

All new contents are first written into one file, the journal. If the process is killed before the
journal is complete, nothing is replaced; after that, everything is. As long as there is a journal,
a reader uses the contents in it instead of the files. So it never sees a new key with an old
certificate.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pliant.protos.daemons.atomic_files import sync_folder, write_private
from pliant.protos.daemons.private_paths import open_private_file, read_private
from pliant.protos.identity.identity_errors import StoredIdentityError

JOURNAL = "changes.json"
#: The lock of a directory. Whoever makes the directory makes it too, so that it has the same owner.
LOCK = "files.lock"
#: Locks are held for some milliseconds.
LOCK_TIMEOUT_S = 10.0
_LOCK_PAUSE_S = 0.005
_MAX_FILE_BYTES = 1 << 16
_MAX_JOURNAL_BYTES = 1 << 20


@contextmanager
def lock_for(path: Path) -> Iterator[None]:
    """Within this context, lock a file against other threads and processes.

    The lock is a second file in the same folder, ``NAME.lock``. Unlike the file at ``path``, the
    lock file is never replaced.

    Raises:
        UntrustedPathError: another account owns the lock file or its directory, or may use it.
        StoredIdentityError: another process holds the lock for too long.
        OSError: the lock file cannot be opened.
    """
    lock = path.with_name(f"{path.name}.lock")
    descriptor = open_private_file(lock, os.O_RDWR | os.O_CREAT)
    try:
        _lock(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    """Take a lock, or raise an error after a time limit, because a stopped command may hold it."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoredIdentityError(
                    f"{path}: another process keeps it locked: end that one (fuser {path})"
                ) from None
            time.sleep(_LOCK_PAUSE_S)
        else:
            return


@contextmanager
def lock_files(directory: Path) -> Iterator[None]:
    """Within this context, lock the files of a directory against other threads and processes.

    Raises:
        UntrustedPathError: another account could use the directory or the lock.
        OSError: the lock cannot be opened.
    """
    with lock_for(directory / LOCK.removesuffix(".lock")):
        yield


def read_files(directory: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of those files among ``names`` that exist. The caller holds the lock.

    If a replacement of files was interrupted, the new contents are read from its journal.

    Raises:
        StoredIdentityError: the journal is damaged.
        UntrustedPathError: another account could read or change a file.
        OSError: a file cannot be read.
    """
    changed = _read_journal(directory)
    found = {}
    for name in names:
        if name in changed:
            content = changed[name]
        else:
            try:
                content = read_private(directory / name, max_bytes=_MAX_FILE_BYTES)
            except FileNotFoundError:
                content = None
        if content is not None:
            found[name] = content
    return found


def replace_files(directory: Path, changes: Mapping[str, bytes | None]) -> None:
    """Replace files, and remove those whose new content is None. The caller holds the lock.

    Raises:
        StoredIdentityError: the journal of an earlier replacement is damaged.
        UntrustedPathError: another account could change the directory.
        OSError: the files cannot be written. Even then, either all or none are replaced.
    """
    # What an interrupted replacement left in its journal is completed together with this one.
    changes = {**_read_journal(directory), **changes}
    record = {
        name: None if content is None else content.decode("ascii")
        for name, content in changes.items()
    }
    # From here on, readers use the new contents.
    write_private(directory / JOURNAL, json.dumps(record).encode("ascii"))
    for name, content in changes.items():
        if content is None:
            (directory / name).unlink(missing_ok=True)
        else:
            write_private(directory / name, content)
    (directory / JOURNAL).unlink()
    sync_folder(directory)


def _read_journal(directory: Path) -> dict[str, bytes | None]:
    path = directory / JOURNAL
    try:
        content = read_private(path, max_bytes=_MAX_JOURNAL_BYTES)
    except FileNotFoundError:
        return {}
    try:
        return {name: _parse(name, text) for name, text in json.loads(content).items()}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise StoredIdentityError(
            f"{path} is damaged ({error}): restore the directory from a copy"
        ) from None


def _parse(name: str, text: str | None) -> bytes | None:
    if "/" in name or name in {"", ".", ".."}:
        raise ValueError(f"{name!r} is no name of a file")
    return None if text is None else text.encode("ascii")

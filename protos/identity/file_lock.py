"""A lock for a private file that several threads and processes read and replace."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pliant.protos.daemons.private_paths import open_private_file


@contextmanager
def lock_for(path: Path) -> Iterator[None]:
    """Keep other threads and processes from reading and writing a file, waiting for them first.

    The lock is a file beside it, ``NAME.lock``, which is never replaced, as ``path`` may be.

    Raises:
        UntrustedPathError: another account owns the lock or its directory, or may use it.
        OSError: the lock cannot be opened.
    """
    lock = path.with_name(f"{path.name}.lock")
    descriptor = open_private_file(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

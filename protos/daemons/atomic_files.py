"""Write small files atomically, and describe why a path cannot be used."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

_MOVE = "move it away, then start again"
_RIGHTS = "let this user write there, or name another folder"
#: By error number: what is wrong with a path, and the remedy.
_REMEDIES: Mapping[int, tuple[str, str]] = {
    errno.EISDIR: ("it is a folder, where a file belongs", _MOVE),
    errno.EEXIST: ("it is a file, where a folder belongs", _MOVE),
    errno.ENOTDIR: ("a part of this path is a file, where a folder belongs", _MOVE),
    errno.EACCES: ("no right to use it", _RIGHTS),
    errno.EPERM: ("no right to use it", _RIGHTS),
    errno.EROFS: ("the device is read-only", _RIGHTS),
}


def write_whole(path: Path, text: str) -> None:
    """Replace the content of a small file in one step, which also survives a power failure.

    The new content is first written to a draft file. Each file has only one writer, so a draft that
    a killed writer left is overwritten.
    """
    draft = _draft_of(path)
    with open(draft, "wb") as file:
        _write_durably(file, text.encode("utf-8"))
    draft.replace(path)
    sync_folder(path.parent)


def write_private(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace the content of a small file in one step, durably.

    The file has its final ``mode`` before it has any content, so that no other account can read
    it in between.
    """
    draft = _draft_of(path)
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # the umask may have removed some of it
        _write_durably(file, content)
    draft.replace(path)
    sync_folder(path.parent)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _write_durably(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make new and replaced names of files in a folder durable, so they survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def describe_unusable(error: OSError) -> str:
    """Return one line for users with the path in an error, the reason and, if known, the remedy."""
    # Of two paths, the second is the cause: the first was created just before.
    path = error.filename2 or error.filename
    if not isinstance(path, str | bytes):
        return str(error)
    what, *remedy = _REMEDIES.get(error.errno or 0, (error.strerror or str(error),))
    return "; ".join([f"{os.fsdecode(path)}: {what}", *remedy])

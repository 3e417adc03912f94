"""Small files of the daemons: replaced whole, and on the disk when the writer goes on.

And what to tell of a place on the disk that is of no use.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

_MOVE = "move it away, then start again"
_RIGHTS = "let this user write there, or name another folder"
#: What is wrong with a place, and what helps.
_REMEDIES: Mapping[int, tuple[str, str]] = {
    errno.EISDIR: ("it is a folder, where a file belongs", _MOVE),
    errno.EEXIST: ("it is a file, where a folder belongs", _MOVE),
    errno.ENOTDIR: ("a part of this path is a file, where a folder belongs", _MOVE),
    errno.EACCES: ("no right to use it", _RIGHTS),
    errno.EPERM: ("no right to use it", _RIGHTS),
    errno.EROFS: ("the device is read-only", _RIGHTS),
}


def write_whole(path: Path, text: str) -> None:
    """Replace a small file: readers see the old or the new text, also after a power failure.

    There is one writer of each file: a draft that a killed one has left is written over.
    """
    draft = path.with_name(f".{path.name}.new")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # else the new name may be lost, and the old text is back
    finally:
        os.close(folder)


def of_no_use(error: OSError) -> str:
    """Say in one line which place on the disk cannot be used, and what helps."""
    # Of two it is the second that is in the way: the first was made just before.
    path = error.filename2 or error.filename
    if not isinstance(path, str | bytes):
        return str(error)
    what, *remedy = _REMEDIES.get(error.errno or 0, (error.strerror or str(error),))
    return "; ".join([f"{os.fsdecode(path)}: {what}", *remedy])

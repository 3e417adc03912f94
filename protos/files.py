"""Small files of the daemons: replaced whole, and on the disk when the writer goes on."""

from __future__ import annotations

import os
from pathlib import Path


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

"""Remove folders of jobs, with memory that does not grow with the number of their files.

`shutil.rmtree` lists each folder before it removes anything, and a job may leave millions of files.
Folders are opened relative to the descriptor of the one above them, and no link is followed. A file
system that is mounted in a folder is not removed, because it may hold other data of the user.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: Of statx(2), which Python has no function for. Linux has the number of the mount since 5.8.
_AT_EMPTY_PATH, _STATX_MNT_ID, _STATX_BYTES, _MNT_ID_OFFSET = 0x1000, 0x1000, 256, 144

#: Called with the name of an entry and why it is left.
OnProblem = Callable[[str, str], None]


def remove_tree(name: str, parent: int, on_problem: OnProblem) -> bool:
    """Remove a file, a link, or a folder with its content; return whether it is gone.

    Args:
        name: the name of the file, link or folder.
        parent: the descriptor of the folder that contains it.
        on_problem: called for each file, link or folder that could not be removed.
    """
    try:
        os.unlink(name, dir_fd=parent)
        return True
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        pass
    except OSError as error:
        on_problem(name, error.strerror or str(error))
        return False
    try:
        handle = os.open(name, _FOLDER, dir_fd=parent)
        try:
            if _mount_of(handle) != _mount_of(parent):
                on_problem(name, "something is mounted there")
                return False
            remove_content(handle, on_problem)
        finally:
            os.close(handle)
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError as error:
        on_problem(name, error.strerror or str(error))
        return False
    return True


def _mount_of(handle: int) -> tuple[str, int]:
    """Return an identifier of the mount of an open folder.

    The device number alone is not sufficient: a bind mount of a part of the same file system has
    the same number.
    """
    found = ctypes.create_string_buffer(_STATX_BYTES)
    try:
        failed = ctypes.CDLL(None).statx(handle, b"", _AT_EMPTY_PATH, _STATX_MNT_ID, found)
    except AttributeError:  # an old C library
        failed = -1
    if not failed and struct.unpack_from("=I", found)[0] & _STATX_MNT_ID:
        return "mount", struct.unpack_from("=Q", found, _MNT_ID_OFFSET)[0]
    return "device", os.fstat(handle).st_dev


def remove_content(handle: int, on_problem: OnProblem) -> None:
    """Remove everything in an open folder.

    Args:
        handle: descriptor of the folder.
        on_problem: called for each entry that could not be removed.
    """
    # A listing may skip entries while others are removed, so it is repeated until nothing is found.
    is_repeated = True
    while is_repeated:
        is_repeated = False
        with os.scandir(handle) as entries:
            for entry in entries:
                is_repeated |= remove_tree(entry.name, handle, on_problem)

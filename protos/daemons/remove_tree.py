"""Remove folders of jobs, with memory that does not grow with the number of their files.

`shutil.rmtree` lists each folder before it removes anything, and a job may leave millions of files.
Folders are opened relative to the descriptor of the one above them, and no link is followed. What
is mounted in a folder stays, because it may hold other data of the user.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: Called with the name of an entry and why it is left.
OnProblem = Callable[[str, str], None]


def remove_tree(name: str, parent: int, on_problem: OnProblem) -> bool:
    """Remove a file, a link, or a folder with its content; return whether it is gone.

    Args:
        name: of the entry.
        parent: descriptor of the folder that contains it.
        on_problem: called for each entry that could not be removed.
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
            if os.fstat(handle).st_dev != os.fstat(parent).st_dev:
                on_problem(name, "another file system is mounted there")
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

"""Remove the checkpoints of a job in a process that has become the job's user.

Everybody may write to the folder of checkpoints, so another user may have replaced the job's folder
by a link or another file. Each folder is opened relative to the descriptor of the one above it,
without following a link, and must belong to the user. The user's rights decide about everything
inside.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import NoReturn

from pliant.nodectl.root_helper.become_user import User, become, leave_session_keyring
from pliant.nodectl.root_helper.descriptors import close_all_but
from pliant.protos.daemons.remove_tree import remove_content

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_TEXT = 300


def fork_removal(folder: Path, user: User, answer_to: socket.socket) -> int:
    """Start a process that removes a folder with the rights of a user, and answers the controller.

    Args:
        folder: the folder of the job's checkpoints, as a signed order names it.
        user: the user of the job.
        answer_to: the connection of the controller's request.

    Returns:
        The id of the process.

    Raises:
        OSError: processes or memory are exhausted.
    """
    pid = os.fork()
    if pid == 0:
        _run(folder, user, answer_to)
    return pid


def _run(folder: Path, user: User, answer_to: socket.socket) -> NoReturn:
    code = 1
    try:
        close_all_but({2, answer_to.fileno()})
        leave_session_keyring()
        become(user)
        answer_to.setblocking(True)
        answer_to.send(json.dumps({"problem": remove_folder(folder, user.uid)}).encode("ascii"))
        code = 0
    finally:
        os._exit(code)


def remove_folder(folder: Path, uid: int) -> str:
    """Remove a folder of user ``uid`` with its content, with the rights of this process.

    Returns:
        Why something is left; empty if nothing is.
    """
    problems: list[str] = []

    def on_problem(name: str, problem: str) -> None:
        if not problems:
            problems.append(f"{name}: {problem}")

    try:
        # Only an administrator can change the path of the folder of all checkpoints.
        base = os.open(folder.parent, _FOLDER)
        try:
            handle = os.open(folder.name, _FOLDER | os.O_NOFOLLOW, dir_fd=base)
        except FileNotFoundError:
            return ""  # removed before
        owner = os.fstat(handle).st_uid
        if owner != uid:
            return f"the folder belongs to user {owner}"
        remove_content(handle, on_problem)
        os.rmdir(folder.name, dir_fd=base)
    except OSError as error:
        on_problem(str(error.filename or folder), error.strerror or str(error))
    except RecursionError:
        on_problem(folder.name, "its folders are nested too deeply")
    return problems[0][:_MAX_TEXT] if problems else ""

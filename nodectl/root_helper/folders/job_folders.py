"""The private folders of jobs: ``jobs/JOB.RUN``, mode 0700, owned by the job's user.

The folder above belongs to root, so only the helper can make, rename or remove entries in it. The
helper never opens anything inside a job's folder. Its content is removed by a process of the user.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pliant.nodectl.root_helper.become_user import User, become
from pliant.nodectl.root_helper.descriptors import close_all_but
from pliant.nodectl.root_helper.helper_errors import HelperRefusalError
from pliant.protos.daemons.remove_tree import remove_content

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Prefix of folders that are being removed. No job has such a name.
_REMOVED = ".removed-"


class JobFolders:
    """Makes and removes the folders of jobs, which belong to the users of the jobs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._base = os.open(path, _FOLDER)
        #: Folders whose content a process has removed, as far as its user could.
        self._cleaned: set[str] = set()

    def open(self, name: str, user: User) -> int:
        """Create the folder of a job, or reuse the one that the same user has; return it opened.

        Returns:
            A descriptor of the folder.

        Raises:
            HelperRefusalError: the name is taken by something else, or by another user's folder.
            OSError: the folder cannot be created.
        """
        try:
            os.mkdir(name, 0o700, dir_fd=self._base)
            is_new = True
        except FileExistsError:
            is_new = False
        try:
            handle = os.open(name, _FOLDER, dir_fd=self._base)
        except OSError as error:
            message = f"{self.path / name} is not a folder: {error.strerror}"
            raise HelperRefusalError("job-folder", message) from None
        try:
            if is_new:
                os.fchown(handle, user.uid, user.gid)
                os.fchmod(handle, 0o700)
            found = os.fstat(handle)
            if found.st_uid != user.uid or stat.S_IMODE(found.st_mode) & 0o077:
                message = f"{self.path / name} belongs to user {found.st_uid}, or is not private"
                raise HelperRefusalError("job-folder", message)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def remove_unused(self, used: Collection[str]) -> bool:
        """Remove the folders of jobs that have ended; processes of their users remove the content.

        Args:
            used: the names of the folders of jobs that are running. All other folders are removed.

        Returns:
            Whether such processes were started. Call this again when they have ended.
        """
        is_cleaning = False
        for name in os.listdir(self._base):
            if name in used:
                continue
            # Without its name, a new run of the job can have a folder while this one is removed.
            hidden = name if name.startswith(_REMOVED) else f"{_REMOVED}{secrets.token_hex(8)}"
            with suppress(OSError):  # it is not there any more, or it is mounted: later
                if hidden != name:
                    os.rename(name, hidden, src_dir_fd=self._base, dst_dir_fd=self._base)
                if not self._remove_empty(hidden) and hidden not in self._cleaned:
                    self._cleaned.add(hidden)
                    self._fork_cleaner(hidden)
                    is_cleaning = True
        return is_cleaning

    def _remove_empty(self, name: str) -> bool:
        try:
            os.rmdir(name, dir_fd=self._base)
        except NotADirectoryError:
            os.unlink(name, dir_fd=self._base)  # a name in a folder of root: no link is followed
        except OSError:
            return False
        return True

    def _fork_cleaner(self, name: str) -> None:
        """Start a process that removes the content of a folder with the rights of its owner."""
        handle = os.open(name, _FOLDER, dir_fd=self._base)
        try:
            owner = os.fstat(handle)
            if os.fork() == 0:
                close_all_but({2, handle})
                _remove_content(handle, owner.st_uid, owner.st_gid)
        finally:
            os.close(handle)


def _remove_content(handle: int, uid: int, gid: int) -> NoReturn:
    try:
        if uid != 0:  # root's: a start was interrupted before it had an owner, so it is empty
            become(User(uid, gid, (gid,), ""))
            with suppress(OSError, RecursionError):  # the rest stays until the host is restarted
                remove_content(handle, lambda *_: None)
    finally:
        os._exit(0)

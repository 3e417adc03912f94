"""Folders that belong to this process's user and into which nobody else can write.

Checkpoints may lie in a folder that several accounts share. Another account could create the
folder of a job first, or put a link in its place. So a folder is opened through the descriptor of
its parent, links are not followed, and owner and mode are checked on what was opened. No MPI.
"""

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from pliant.protos.daemons.private_paths import UntrustedPathError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class PrivateFolder:
    """An open folder to which only this user can write.

    Its methods take the names of files in the folder, and refuse paths.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        """Take ownership of the descriptor of a folder that `open` has checked."""
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Self:
        """Open a folder; the last component of its path must not be a link.

        Args:
            path: The path of the folder.
            create: Create the folder and its parents, with mode 0700, if it does not exist.

        Raises:
            UntrustedPathError: The folder belongs to another user, others can write into it, or it
                is not a folder.
            FileNotFoundError: The folder does not exist, and ``create`` is not set.
            OSError: The folder cannot be opened or created.
        """
        path = path.absolute()
        if create:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return cls._open(parent, path.name or ".", path, create)
        finally:
            os.close(parent)

    def child(self, name: str, *, create: bool = False) -> "PrivateFolder":
        """Open a folder inside this one; owner and mode are checked as by `open`."""
        return PrivateFolder._open(self._descriptor, _plain(name), self.path / name, create)

    @classmethod
    def _open(cls, parent: int, name: str, path: Path, create: bool) -> Self:
        if create:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise UntrustedPathError(f"{path} is a link or a file, expected a folder") from None
            raise
        try:
            _check(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, path)

    def read(self, name: str) -> BinaryIO:
        """Open a file for reading.

        Raises:
            UntrustedPathError: The file belongs to another user, others can write it, or it is not
                a regular file.
            OSError: The file cannot be opened.
        """
        path, flags = self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(_plain(name), flags, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UntrustedPathError(f"{path} is a link, expected a file") from None
            raise
        try:
            if not stat.S_ISREG(_check(descriptor, path)):
                raise UntrustedPathError(f"{path} is not a file")
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def write(self, name: str) -> BinaryIO:
        """Create a new file with mode 0600.

        Raises:
            OSError: The file exists or cannot be created.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(_plain(name), flags, 0o600, dir_fd=self._descriptor), "wb")

    def names(self) -> list[str]:
        """Return the names of all files and folders in the folder.

        Raises:
            OSError: The folder cannot be read.
        """
        return os.listdir(self._descriptor)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, and replace an existing file of the new name.

        Raises:
            OSError: The file cannot be renamed.
        """
        here = self._descriptor
        os.rename(_plain(old), _plain(new), src_dir_fd=here, dst_dir_fd=here)

    def link_new(self, draft: str, name: str) -> None:
        """Rename ``draft`` to ``name`` if no file has that name yet.

        If there is one, it stays, and the draft is removed.

        Raises:
            OSError: The file could not be linked.
        """
        here = self._descriptor
        try:
            with suppress(FileExistsError):
                os.link(_plain(draft), _plain(name), src_dir_fd=here, dst_dir_fd=here)
                self.sync()
        finally:
            self.remove(draft)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents; errors are ignored."""
        with suppress(OSError):
            os.unlink(_plain(name), dir_fd=self._descriptor)
            return
        shutil.rmtree(_plain(name), ignore_errors=True, dir_fd=self._descriptor)

    def sync(self) -> None:
        """Write the names in the folder to the disk (fsync).

        Raises:
            OSError: The fsync failed.
        """
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _check(descriptor: int, path: Path) -> int:
    """Check owner and mode of an open file or folder, and return its mode.

    Raises:
        UntrustedPathError: Another user owns it, or others can write it.
    """
    found, user = os.fstat(descriptor), os.geteuid()
    if found.st_uid != user:
        raise UntrustedPathError(
            f"{path} belongs to user {found.st_uid}, this process runs as user {user}: another "
            "account may have made it; have it removed, or let no other account write into "
            f"{path.parent}"
        )
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise UntrustedPathError(
            f"{path} can be written by other accounts (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"check what is in it, then run chmod go-w {path}"
        )
    return found.st_mode


def _plain(name: str) -> str:
    """Return a file name after checking that it names a file in this folder, not a path.

    Raises:
        UntrustedPathError: The name leads elsewhere.
    """
    if "/" in name or name in ("", ".", "..") or "\0" in name:
        raise UntrustedPathError(f"{name!r} is no name of a file in a checkpoint")
    return name

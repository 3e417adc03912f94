"""Paths that no other account can change: private directories and the sockets in them.

Commands import this module at every start, so it needs neither ``pathlib`` nor ``dataclasses``:
these two took a fifth of the time of `jobstat`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection

from pliant.core.support.base_error import PliantError

REMOVE_AND_RESTART = "remove it, then start the server again"


class UntrustedPathError(PliantError, OSError):
    """Another account could control a path; the message names the path and the remedy."""


def open_private(
    directory: str | os.PathLike[str],
    *,
    shared: bool = False,
    owners: Collection[int] | None = None,
) -> int:
    """Open a directory that no other account can change, and return its descriptor.

    Everything that is then reached through the descriptor is inside the directory that was checked,
    even if its path is renamed or replaced.

    Args:
        directory: the path.
        shared: whether other accounts may list and enter it; they may never change it.
        owners: the user ids that may own it; None for this account and root.

    Raises:
        UntrustedPathError: another account owns it, or may use it.
        OSError: the directory cannot be opened.
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(directory, os.fstat(descriptor), 0o022 if shared else 0o077, owners)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class PrivateSocket:
    """A context in which a unix socket can be used, after its owner and mode were checked.

    The owner and mode of its directory are checked, too. The value of the context is a short path
    to the socket, which is valid only inside the block. It is short because the path of a unix
    socket has at most 107 bytes. (Commands start sooner with a class than with a decorated
    generator, for which they would import ``contextlib``.)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shared: bool = False,
        owners: Collection[int] | None = None,
    ) -> None:
        """Store the path of a socket; the checks are made when the context is entered.

        Args:
            path: the path of the socket.
            shared: whether other accounts may use it.
            owners: as for `open_private`.
        """
        self._path, self._shared, self._owners = path, shared, owners
        self._descriptor = -1

    def __enter__(self) -> str:
        """Check the socket and its directory, and return the short path.

        Raises:
            UntrustedPathError: another account owns one of them, or may use one of them.
            OSError: there is no such socket.
        """
        directory, name = os.path.split(self._path)
        descriptor = open_private(directory or ".", shared=self._shared, owners=self._owners)
        try:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISSOCK(found.st_mode):
                raise UntrustedPathError(f"{self._path} is not a socket; {REMOVE_AND_RESTART}")
            _check(self._path, found, 0 if self._shared else 0o077, self._owners)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return f"/proc/self/fd/{descriptor}/{name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def open_private_file(path: str | os.PathLike[str], flags: int, *, shared: bool = False) -> int:
    """Open a file that no other account can change. The same is checked for its directory.

    Args:
        path: the path of the file. A link is not followed.
        flags: the flags of the open call, such as ``os.O_RDONLY``; a new file gets mode 0600.
        shared: whether other accounts may read it, and enter its directory.

    Returns:
        The descriptor of the file.

    Raises:
        UntrustedPathError: another account owns the file or its directory, or may use it; or the
            path is not a regular file.
        OSError: the file cannot be opened.
    """
    directory, name = os.path.split(path)
    descriptor = open_private(directory or ".", shared=shared)
    try:
        # Without O_NONBLOCK a pipe in its place would make this wait.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(name, flags, 0o600, dir_fd=descriptor)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
            raise UntrustedPathError(f"{path} is a link, where a file belongs") from None
    finally:
        os.close(descriptor)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise UntrustedPathError(f"{path} is not a file")
        _check(path, found, 0o022 if shared else 0o077)
    except BaseException:
        os.close(file)
        raise
    return file


def read_private(path: str | os.PathLike[str], *, max_bytes: int, shared: bool = False) -> bytes:
    """Return the content of a file that no other account can change.

    Args:
        path: the path of the file.
        max_bytes: the largest size that is accepted.
        shared: whether other accounts may read the file, and enter its directory.

    Raises:
        UntrustedPathError: as `open_private_file`, or the file is larger than ``max_bytes``.
        OSError: the file cannot be read.
    """
    with os.fdopen(open_private_file(path, os.O_RDONLY, shared=shared), "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UntrustedPathError(f"{path} is larger than {max_bytes} bytes")
    return content


def _check(
    path: str | os.PathLike[str],
    found: os.stat_result,
    forbidden: int,
    owners: Collection[int] | None = None,
) -> None:
    """Check that a file belongs to a permitted account and has no forbidden permissions.

    Args:
        path: the path of the file, for errors.
        found: its owner and mode.
        forbidden: the bits that its mode must not have.
        owners: the user ids that may own it; None for this account and root.

    Raises:
        UntrustedPathError: another account owns the file, or its mode has a forbidden bit.
    """
    if found.st_uid not in ((os.geteuid(), 0) if owners is None else owners):
        raise UntrustedPathError(
            f"{path} belongs to the user with id {found.st_uid}: it is not used; remove it, "
            "or name another directory (PLIANT_STATE_DIR, PLIANT_RUN_DIR)"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & forbidden:
        wanted = mode & ~forbidden & 0o777
        raise UntrustedPathError(
            f"{path}: other users may use it (mode {mode:04o}); run `chmod {wanted:o} {path}`, "
            "or name another directory (PLIANT_STATE_DIR, PLIANT_RUN_DIR)"
        )

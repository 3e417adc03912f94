"""Pack files into a tar archive, and unpack an archive that may have been made by anybody.

Archives are not compressed, so that a limit on the size of an archive also limits its content.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO

from pliant.core.support.base_error import PliantError

#: Bytes that are read from a file or written to it at once.
BLOCK_BYTES = 1 << 20
#: Maximum number of files in an archive. It would take too long to list more.
MAX_FILES = 1_000_000

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

#: The state of a file, by which a change is noticed: time of modification in ns, and size.
FileState = tuple[int, int]


class StagingError(PliantError):
    """Files of a job cannot be sent or returned; the text is for the user."""


def relative_name(name: str, folder: str) -> str:
    """Return the path of a file or folder relative to ``folder``, which must contain it.

    Raises:
        StagingError: the file is outside the folder.
    """
    path = os.path.relpath(os.path.join(folder, name), folder)
    if path == os.pardir or path.startswith(os.pardir + os.sep):
        raise StagingError(f"{name} is outside the working directory {folder}")
    return path


def pack(folder: str, names: Iterable[str], target: IO[bytes], limit: int) -> None:
    """Write files and folders with their content into an archive.

    Args:
        folder: the folder to which the names are relative.
        names: files and folders inside it.
        target: a file that is open for writing.
        limit: the largest size of the archive in bytes.

    Raises:
        StagingError: a name does not exist, cannot be read, is neither a file nor a folder nor a
            link inside the folder, or the archive is larger than the limit.
    """
    files = {path: None for name in names for path in walk(folder, relative_name(name, folder))}
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in files:
            try:
                _add(tar, folder, path)
            except OSError as error:
                raise StagingError(f"{path}: {_text(error)}") from None
            if tar.offset > limit:
                raise StagingError(f"the files have more than {limit} bytes together")


def walk(folder: str, name: str) -> Iterator[str]:
    """Yield the name of a file or folder and of its content, relative to ``folder``.

    No link is followed.

    Raises:
        StagingError: the file does not exist or cannot be read.
    """
    path = os.path.join(folder, name)
    try:
        is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
        inside = sorted(os.listdir(path)) if is_folder else []
    except OSError as error:
        raise StagingError(f"{name}: {_text(error)}") from None
    if name != os.curdir:
        yield name
    for entry in inside:
        yield from walk(folder, os.path.normpath(os.path.join(name, entry)))


def _add(tar: tarfile.TarFile, folder: str, path: str) -> None:
    full = os.path.join(folder, path)
    mode = os.lstat(full).st_mode
    if stat.S_ISLNK(mode):
        _check_link(path, os.readlink(full))
    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StagingError(f"{path} is neither a file nor a folder nor a link")
    tar.inodes = {}  # type: ignore[attr-defined]  # hard links become files of their own
    tar.add(full, path, recursive=False)


def _check_link(path: str, target: str) -> None:
    """Raise StagingError if the target of a link is outside the folder of the archive.

    ``..`` is permitted only at the beginning of the target. After the name of another link, ``..``
    could lead out of the folder.

    Args:
        path: the path of the link in the folder.
        target: its target.
    """
    words = [word for word in target.split("/") if word not in {"", os.curdir}]
    ups = next((place for place, word in enumerate(words) if word != os.pardir), len(words))
    is_inside = ups <= path.count("/") and os.pardir not in words[ups:]
    if not is_inside or target.startswith("/"):
        raise StagingError(f"{path} is a link to {target}, outside the working directory")


def unpack(source: IO[bytes], folder: str, limit: int) -> list[str]:
    """Unpack an archive into a folder, and return the names of its files and links.

    Nothing is written outside the folder, even if the folder contains links. Only files, folders,
    and links that stay inside are permitted. Owners in the archive are ignored.

    Raises:
        StagingError: the archive is damaged, too large, or has something that is not permitted.
        OSError: a file cannot be written.
    """
    total, names = 0, list[str]()
    base = os.open(folder, _FOLDER)
    try:
        with tarfile.open(fileobj=source, mode="r:") as tar:
            for member in tar:
                total += member.size
                if total > limit or len(names) > MAX_FILES:
                    raise StagingError(
                        f"the archive holds more than {limit} bytes or {MAX_FILES} files"
                    )
                name = _checked_name(member)
                _extract(tar, member, name, base)
                if not member.isdir():
                    names.append(name)
    except (tarfile.TarError, EOFError, UnicodeError, ValueError) as error:
        raise StagingError(f"the archive cannot be unpacked: {error}") from None
    finally:
        os.close(base)
    return names


def _checked_name(member: tarfile.TarInfo) -> str:
    """Return the path of an archive's member relative to the folder, after checking the member.

    Raises:
        StagingError: the path leads out of the folder, or the member is neither a file nor a
            folder nor a link inside it.
    """
    words = [word for word in member.name.split("/") if word not in {"", os.curdir}]
    if member.name.startswith("/") or os.pardir in words or not words:
        raise StagingError(f"{member.name!r} in the archive is outside the folder")
    name = "/".join(words)
    if member.issym():
        _check_link(name, member.linkname)
    elif not (member.isreg() or member.isdir()) or member.issparse():
        raise StagingError(f"{name} in the archive is neither a file nor a folder nor a link")
    return name


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, base: int) -> None:
    """Write one member below the folder with descriptor ``base``, without following links.

    The filters of `tarfile` would do the same, but the Python of Debian 12 does not have them.
    """
    *parents, last = name.split("/")
    folder = os.dup(base)
    try:
        for parent in parents:
            folder = _enter(folder, parent)
        if member.isdir():
            folder = _enter(folder, last)
            os.fchmod(folder, member.mode & 0o777 | 0o700)
            return
        with suppress(FileNotFoundError):
            os.unlink(last, dir_fd=folder)
        if member.issym():
            os.symlink(member.linkname, last, dir_fd=folder)
            return
        content = tar.extractfile(member)
        assert content is not None
        handle = os.open(last, _NEW_FILE, 0o600, dir_fd=folder)
        with content, os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(content, file, BLOCK_BYTES)
            file.flush()
            os.fchmod(handle, member.mode & 0o777 | 0o600)
            os.utime(handle, (member.mtime, member.mtime))
    finally:
        os.close(folder)


def _enter(folder: int, name: str) -> int:
    """Open a folder inside an open one, creating it if it is missing, and close the outer one.

    Args:
        folder: descriptor of the outer folder.
        name: the name of the inner folder.

    Returns:
        The descriptor of the inner folder.
    """
    try:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        inside = os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            raise StagingError(f"{name} in the archive is no folder here") from None
        raise
    os.close(folder)
    return inside


def states(folder: str) -> dict[str, FileState]:
    """Return the modification time and size of each file and link in a folder, by relative name."""
    found = {}
    for path in walk(folder, os.curdir):
        try:
            entry = os.lstat(os.path.join(folder, path))
        except OSError:
            continue  # it has been removed since
        if stat.S_ISREG(entry.st_mode) or stat.S_ISLNK(entry.st_mode):
            found[path] = (entry.st_mtime_ns, entry.st_size)
    return found


def changed_files(
    folder: str, before: Mapping[str, Sequence[int]], patterns: Sequence[str] = ()
) -> list[str]:
    """Return the files of a folder that are new or have changed.

    Args:
        folder: the folder.
        before: the earlier states, as `states` returned them.
        patterns: return only files whose name matches one of them, such as ``*.dat``. Without
            patterns, return all.
    """
    return [
        path
        for path, state in states(folder).items()
        if tuple(before.get(path, ())) != state
        and (not patterns or any(fnmatch.fnmatch(path, pattern) for pattern in patterns))
    ]


def digest(source: IO[bytes]) -> str:
    """Return the SHA-256 of a file from its present position on, in hexadecimal digits."""
    found = hashlib.sha256()
    while block := source.read(BLOCK_BYTES):
        found.update(block)
    return found.hexdigest()


def check_space(folder: str, needed: int, reserve: int = 0) -> None:
    """Check that a file system has space for new files.

    Args:
        folder: a folder in this file system.
        needed: the size of the new files in bytes.
        reserve: the bytes that must be free afterwards.

    Raises:
        StagingError: there is too little space; the text names the folder.
    """
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize - reserve
    if needed > free:
        raise StagingError(
            f"{folder}: the files need {needed} bytes, and only {max(0, free)} bytes are free"
        )


def _text(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such file or folder"
    return (error.strerror or str(error)).lower()

"""Read ``/proc``: identity, state, tree and environment of processes; standard library only."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

_CHUNK = 1 << 16

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: Positions in ``/proc/PID/stat``, counted after the parenthesised command name.
_STATE, _PARENT, _SESSION, _TERMINAL, _MAJOR_FAULTS, _CHILD_MAJOR_FAULTS = 0, 1, 3, 4, 9, 10
_START, _RESIDENT = 19, 21

_USER, _SYSTEM, _CHILD_USER, _CHILD_SYSTEM = 11, 12, 13, 14

#: Units of processor time in ``/proc/PID/stat`` per second.
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

#: The lines of ``/proc/PID/io`` that `read_usage` returns.
_IO = ("rchar", "wchar", "read_bytes", "write_bytes")

_IO_LINES = tuple(name.encode() for name in _IO)

#: The names of `ProcessUsage.counters`.
COUNTERS = ("user_s", "system_s", "major_faults", *_IO)

#: Errors of opening a file that exists.
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

#: States of a process that has ended.
ENDED_STATES = frozenset("ZXx")


class ProcessIdentity(NamedTuple):
    """A process, identified by boot, id and start time, because ids are reused."""

    boot: str
    pid: int
    start: int

    @classmethod
    def of(cls, pid: int, *, strict: bool = False) -> ProcessIdentity | None:
        """Return the identity of a process, or None if there is no such process.

        Raises:
            OSError: with `strict`, if no descriptor is left to read it.
        """
        stat = read_stat(pid, strict=strict)
        return cls(boot_id(), pid, stat.start) if stat is not None else None

    def alive(self) -> bool:
        """Return whether this process still runs; a later process with the same id does not count.

        True also if that cannot be found out.
        """
        try:
            stat = read_stat(self.pid, strict=True)
        except OSError:
            return True
        return (
            stat is not None
            and stat.state not in ENDED_STATES
            and (self.boot, self.start) == (boot_id(), stat.start)
        )


class Stat(NamedTuple):
    """The fields of ``/proc/PID/stat`` that are needed here."""

    state: str
    parent: int
    session: int
    major_faults: int
    start: int
    resident_bytes: int
    #: Of children that have ended and were waited for, and of their children.
    child_major_faults: int


class ProcessUsage(NamedTuple):
    """The resources used by a process, and by its children that ended and were waited for."""

    state: str
    parent: int
    start: int
    resident_bytes: int
    #: Totals in the order of `COUNTERS`; those of time are in ticks, see `TICKS_PER_S`.
    counters: tuple[int, ...]


@cache
def boot_id() -> str:
    """Return the identity of this boot of this host."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _read(pid: int, name: str, *, strict: bool = False) -> bytes:
    """Return a file of ``/proc/PID``; empty if the process has ended or is another user's.

    If no descriptor is left, return nothing or, with `strict`, raise the error. `os.open` is used
    because `open` touches more memory, which a new fork would have to copy.
    """
    try:
        handle = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _SCARCE and strict:
            raise
        return b""
    try:
        data = chunk = os.read(handle, _CHUNK)
        while chunk:
            chunk = os.read(handle, _CHUNK)
            data += chunk
        return data
    except OSError:
        return b""
    finally:
        os.close(handle)


def _stat_fields(pid: int, *, strict: bool = False) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` that follow the process's name, the first its state.

    Empty if there is no such process.
    """
    text = _read(pid, "stat", strict=strict)
    return text[text.rindex(b")") + 2 :].split() if text else []


def read_stat(pid: int, *, strict: bool = False) -> Stat | None:
    """Return the status of a process, or None if there is no such process.

    Raises:
        OSError: with ``strict``, if no descriptor is left to read it.
    """
    fields = _stat_fields(pid, strict=strict)
    if not fields:
        return None
    return Stat(
        fields[_STATE].decode("ascii"),
        int(fields[_PARENT]),
        int(fields[_SESSION]),
        int(fields[_MAJOR_FAULTS]),
        int(fields[_START]),
        int(fields[_RESIDENT]) * PAGE_BYTES,
        int(fields[_CHILD_MAJOR_FAULTS]),
    )


def has_terminal(pid: int) -> bool:
    """Return whether a process has a controlling terminal."""
    fields = _stat_fields(pid)
    return bool(fields) and int(fields[_TERMINAL]) != 0


def read_usage(pid: int) -> ProcessUsage | None:
    """Return the resource usage of a process, or None if there is no such process.

    The counters of I/O are 0 if the kernel does not permit to read them.
    """
    fields = _stat_fields(pid)
    if not fields:
        return None
    io = dict(line.split(b": ") for line in _read(pid, "io").splitlines())
    return ProcessUsage(
        fields[_STATE].decode("ascii"),
        int(fields[_PARENT]),
        int(fields[_START]),
        int(fields[_RESIDENT]) * PAGE_BYTES,
        (
            int(fields[_USER]) + int(fields[_CHILD_USER]),
            int(fields[_SYSTEM]) + int(fields[_CHILD_SYSTEM]),
            int(fields[_MAJOR_FAULTS]) + int(fields[_CHILD_MAJOR_FAULTS]),
            *(int(io.get(name, 0)) for name in _IO_LINES),
        ),
    )


def environment(pid: int) -> frozenset[bytes]:
    """Return the NAME=value entries of the environment in which a process was started."""
    return frozenset(_read(pid, "environ").split(b"\0"))


def open_folders(pid: int) -> list[Path]:
    """Return paths in ``/proc`` of a process's open folders; valid even if a folder is moved."""
    folder = f"/proc/{pid}/fd"
    try:
        handles = [Path(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []  # it has ended, or is another user's
    return [handle for handle in handles if os.path.isdir(handle)]


def tasks(pid: int) -> list[int]:
    """Return the thread ids of a process; empty if it has ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Return the direct children of a process, zombies included."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    except FileNotFoundError:
        if os.path.exists("/proc/self/task") and not _kernel_lists_children():
            return [child for child in processes() if _parent(child) == pid]
    except OSError:
        pass  # it has just ended
    return found


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process, parents before children."""
    found: list[int] = []
    level = children(pid)
    while level:
        found.extend(level)
        level = [grandchild for child in level for grandchild in children(child)]
    return found


def processes() -> Iterator[int]:
    """Yield the ids of all processes of this host."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def maps(pid: int) -> list[bytes]:
    """Return the memory mappings of a process, one per line."""
    return _read(pid, "maps").splitlines()


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process in bytes; shared pages count in proportion (Pss)."""
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def swapped_bytes(pid: int) -> int:
    """Return the memory of a process in bytes that is in swap."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"VmSwap:"):
            return int(line.split()[1]) * 1024
    return 0


def has_swap() -> bool:
    """Return whether this host has swap space."""
    with open("/proc/swaps", encoding="utf-8", errors="replace") as file:
        return len(file.readlines()) > 1


def private_bytes(pid: int) -> int:
    """Return the resident bytes of a process, without mapped files and shared memory."""
    fields = _read(pid, "statm").split()
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES if len(fields) > 2 else 0


def _parent(pid: int) -> int:
    stat = read_stat(pid)
    return stat.parent if stat is not None else 0


def _kernel_lists_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")

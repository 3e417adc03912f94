"""Processes as the kernel shows them: who is alive, who is whose, what they carry."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

#: Waiting looks this often.
_EVERY_S = 0.02


def pids() -> Iterator[int]:
    """Yield the ids of all processes."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def alive(pid: int) -> bool:
    """Return whether a process is there and not a zombie."""
    return state(pid) not in {"", "Z", "X"}


def state(pid: int) -> str:
    """Return the kernel's letter for a process's state, or nothing when there is no such one."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def started(pid: int) -> int:
    """Return when a process began, in ticks since boot; -1 when there is no such one."""
    fields = _stat(pid)
    return int(fields[19]) if fields else -1


def parent(pid: int) -> int:
    """Return the id of a process's parent, or 0 when there is no such one."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may hold anything."""
    text = _read(pid, "stat").decode("ascii", "replace")
    return text[text.rindex(")") + 2 :].split() if ")" in text else []


def words(pid: int) -> list[str]:
    """Return the command line of a process; empty for zombies and those of others."""
    return [os.fsdecode(word) for word in _read(pid, "cmdline").split(b"\0") if word]


def program(pid: int) -> str:
    """Return the module that a Python process runs, ``pliant.WORD`` for `pliant WORD`; or nothing.

    Only words at their places count: a shell or a pager may name a module anywhere.
    """
    first, *rest = words(pid) or [""]
    if not os.path.basename(first).startswith("python"):
        return ""
    while rest and rest[0].startswith("-") and rest[0] not in {"-m", "-c"}:
        rest = rest[1:]  # of the interpreter
    if len(rest) < 2 or rest[0] == "-c":
        return ""
    if rest[0] == "-m":
        return rest[1]
    return f"pliant.{rest[1]}" if os.path.basename(rest[0]) == "pliant" else ""


def option(pid: int, name: str) -> str:
    """Return what the command line of a process gives as an option, ``NAME VALUE``; or nothing."""
    value, line = "", words(pid)
    for word, following in zip(line, [*line[1:], ""], strict=True):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
    return value


def ancestors() -> set[int]:
    """Return this process, its parent, and so on."""
    found, pid = set[int](), os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = parent(pid)
    return found


def environment(pid: int) -> dict[str, str]:
    """Return the environment that a process began with; empty for those of others."""
    pairs = (os.fsdecode(entry).partition("=") for entry in _read(pid, "environ").split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def files(pid: int) -> list[str]:
    """Return what files a process has open; of one that was removed the kernel says so."""
    folder, found = f"/proc/{pid}/fd", list[str]()
    with suppress(OSError):  # it has gone, or is somebody else's
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):  # it was closed meanwhile
                found.append(os.readlink(f"{folder}/{name}"))
    return found


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""  # it has gone, or is somebody else's


def find(wanted: Callable[[int], bool]) -> list[int]:
    """Return the living processes, but this one and its ancestors, that a test accepts."""
    own = ancestors()
    return [pid for pid in pids() if pid not in own and wanted(pid) and alive(pid)]


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has gone; what is not ours is not to be ended by us


def wait_gone(targets: Iterable[int], timeout_s: float) -> list[int]:
    """Wait until processes have ended and return those that have not in time."""
    deadline = time.monotonic() + timeout_s
    left = [pid for pid in targets if alive(pid)]
    while left and time.monotonic() < deadline:
        time.sleep(_EVERY_S)
        left = [pid for pid in left if alive(pid)]
    return left


def end(targets: Iterable[int], grace_s: float) -> list[int]:
    """Ask processes to end, then end them; return those that are there in spite of it."""
    # An id may be given again while we wait: only a process that began when it did is the one.
    born = {pid: started(pid) for pid in targets if alive(pid)}
    for pid in born:
        send(pid, signal.SIGTERM)
    left = [pid for pid in wait_gone(born, grace_s) if started(pid) == born[pid]]
    for pid in left:
        send(pid, signal.SIGKILL)
    return [pid for pid in wait_gone(left, 5.0) if started(pid) == born[pid]]


def adopt_orphans() -> None:
    """Make this process the parent of descendants that lose theirs, so that it can collect them."""
    import ctypes

    subreaper = 36  # PR_SET_CHILD_SUBREAPER
    ctypes.CDLL(None, use_errno=True).prctl(subreaper, 1, 0, 0, 0)


def collect() -> int:
    """Collect children that have ended and return how many."""
    count = 0
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return count
        if not pid:
            return count
        count += 1

"""Processes as ``/proc`` shows them: state, parent, command line, environment; and signals."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

#: Seconds between two looks while waiting.
_POLL_S = 0.02


def pids() -> Iterator[int]:
    """Yield the ids of all processes."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    return state(pid) not in {"", "Z", "X"}


def state(pid: int) -> str:
    """Return the kernel's letter for the state of a process; empty if there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; -1 if it does not exist."""
    fields = _stat(pid)
    return int(fields[19]) if fields else -1


def parent(pid: int) -> int:
    """Return the parent's id of a process; 0 if the process does not exist."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat that follow the name of the process, from its state on.

    The name itself is skipped, because it may contain blanks and parentheses. The result is empty
    if there is no such process.
    """
    text = _read(pid, "stat").decode("ascii", "replace")
    return text[text.rindex(")") + 2 :].split() if ")" in text else []


def command_line(pid: int) -> list[str]:
    """Return the command line of a process; empty for zombies and for other users' processes."""
    return [os.fsdecode(word) for word in _read(pid, "cmdline").split(b"\0") if word]


def program(pid: int) -> str:
    """Return the Pliant module that a process runs, ``pliant.NAME``; empty for other processes.

    The module is recognised by its position after ``python``, ``python -m`` or ``python pliant``.
    A module name among the arguments of another program, such as a shell or a pager, is ignored.
    """
    first, *rest = command_line(pid) or [""]
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
    """Return the value of an option on a process's command line; empty if it is not there."""
    value, line = "", command_line(pid)
    for word, following in zip(line, [*line[1:], ""], strict=True):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
    return value


def ancestors() -> set[int]:
    """Return the ids of this process and all its ancestors."""
    found, pid = set[int](), os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = parent(pid)
    return found


def environment(pid: int) -> dict[str, str]:
    """Return the environment with which a process started; empty for other users' processes."""
    pairs = (os.fsdecode(entry).partition("=") for entry in _read(pid, "environ").split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def open_files(pid: int) -> list[str]:
    """Return the paths of the open files of a process; removed ones end with " (deleted)"."""
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
    """Return the ids of the running processes that the function ``wanted`` selects.

    This process and its ancestors are left out.
    """
    own = ancestors()
    return [pid for pid in pids() if pid not in own and wanted(pid) and alive(pid)]


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process; do nothing if it has ended."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has gone, or belongs to another user


def wait_gone(targets: Iterable[int], timeout_s: float) -> list[int]:
    """Wait until processes have ended; return those that still run after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    left = [pid for pid in targets if alive(pid)]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = [pid for pid in left if alive(pid)]
    return left


def terminate(targets: Iterable[int], grace_s: float) -> list[int]:
    """End processes: SIGTERM, and after ``grace_s`` SIGKILL; return those that still exist."""
    # An id may be reused while we wait: compare the start times.
    born = {pid: start_time(pid) for pid in targets if alive(pid)}
    for pid in born:
        send_signal(pid, signal.SIGTERM)
    left = [pid for pid in wait_gone(born, grace_s) if start_time(pid) == born[pid]]
    for pid in left:
        send_signal(pid, signal.SIGKILL)
    return [pid for pid in wait_gone(left, 5.0) if start_time(pid) == born[pid]]


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that it can reap them."""
    import ctypes

    subreaper = 36  # PR_SET_CHILD_SUBREAPER
    ctypes.CDLL(None, use_errno=True).prctl(subreaper, 1, 0, 0, 0)


def reap_children() -> int:
    """Reap children that have ended, and return how many there were."""
    count = 0
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return count
        if not pid:
            return count
        count += 1

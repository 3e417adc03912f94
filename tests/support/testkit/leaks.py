"""Finding what a test left behind: processes and threads."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

#: Set for the whole session; processes that were detached on purpose still inherit it.
MARK = "PLIANT_TEST_SESSION"

#: State folders of clusters that several tests share. A test may replace their daemons, which are
#: no leak of that test; jobs are.
SHARED: set[str] = set()
#: Processes that serve all tests of this process and end with it.
SHARED_PIDS: set[int] = set()
_DAEMONS = ("pliant.server", "pliant.nodectl")

#: It has no world and belongs to its launcher, with which it ends.
IDLE_SHIM = "idle shim"


#: What an MPI program that was killed leaves behind, unless it ran under Pliant, and how old that
#: is when it is nobody's for sure, seconds.
_SEGMENTS, _SETTLED_S = "mpich_shm_*", 5.0


def remove_segments(since: float) -> None:
    """Remove the shared memory of MPI programs that were killed on purpose after a time."""
    for path in Path("/dev/shm").glob(_SEGMENTS):
        with suppress(FileNotFoundError):
            status = path.stat()
            ours = status.st_uid == os.getuid() and since < status.st_ctime
            if ours and status.st_ctime < time.time() - _SETTLED_S and not _mapped(path):
                path.unlink()


def _mapped(path: Path) -> bool:
    """Return whether a process has a file in its memory."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if str(path) in maps.read_text(errors="replace"):
                return True
    return False


def session_processes() -> set[psutil.Process]:
    """Return the living processes that descend from this session, however they were detached."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = set()
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            # `psutil.process_iter` reads more of each process and takes four times as long, and
            # this is called often while processes end.
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark not in file.read() or pid == os.getpid() or pid in SHARED_PIDS:
                    continue
            process = psutil.Process(pid)
            if process.name() != IDLE_SHIM:
                found.add(process)
        except (psutil.Error, OSError):
            continue  # it has ended, is a zombie, or belongs to somebody else
    return found


def children() -> set[psutil.Process]:
    """Return the direct children of this process, zombies included."""
    found = set()
    for pid in _child_pids():
        try:
            found.add(psutil.Process(pid))
        except psutil.Error:
            continue
    return found


class Leaks:
    """What is there before a test, to be compared with what is there after it."""

    def __init__(self, *, detached: bool) -> None:
        self._detached = detached
        self._processes = self._all_processes()
        self._threads = set(threading.enumerate())

    def find(self, *, within: float = 10.0) -> list[str]:
        """Return a line for each leak that is still there after a grace time, and end processes."""
        deadline = time.monotonic() + within
        while (self._new_processes() or self._new_threads()) and time.monotonic() < deadline:
            time.sleep(0.01)
        lines = [f"thread {thread.name!r} still runs" for thread in self._new_threads()]
        for process in self._new_processes():
            lines.append(f"process {describe(process)} still runs")
            end(process)
        return sorted(lines)

    def _all_processes(self) -> set[psutil.Process]:
        found = {process for process in children() if process.pid not in SHARED_PIDS}
        if not self._detached:
            return found
        found |= session_processes()
        return {process for process in found if not _is_shared_daemon(process)}

    def _new_processes(self) -> set[psutil.Process]:
        return self._all_processes() - self._processes

    def _new_threads(self) -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread not in self._threads and thread.is_alive() and not thread.daemon
        ]


def _is_shared_daemon(process: psutil.Process) -> bool:
    try:
        env = process.environ()
        if env.get("PLIANT_STATE_DIR") not in SHARED or "PLIANT_JOB" in env:
            return False
        return any(word.startswith(_DAEMONS) for word in process.cmdline())
    except (psutil.Error, OSError):
        return False  # it has ended, or is a zombie


def describe(process: psutil.Process) -> str:
    """Return the id and the command line of a process that may be ending."""
    try:
        return f"{process.pid} ({' '.join(process.cmdline()) or process.status()})"
    except psutil.Error:
        return str(process.pid)


def end(process: psutil.Process) -> None:
    """Kill a process that this session started, and collect it where it is a child."""
    try:
        process.kill()
        process.wait(timeout=5)
    except psutil.Error:
        pass  # it ended by itself, or nobody collects it


def _child_pids() -> set[int]:
    """Read the kernel's list, which is far cheaper than looking at every process."""
    pids: set[int] = set()
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
                pids.update(map(int, file.read().split()))
    except FileNotFoundError:  # a thread has just ended, or the kernel lacks this file
        pids = {process.pid for process in psutil.Process().children()}
    return pids

"""The keeper of a world: a process of root that starts the shim as the user and ends what is left.

The helper forks a keeper for each world. The keeper forks the shim, which becomes the user before
it executes anything. The keeper is the *subreaper* of the shim: a process of the job that loses its
parent becomes a child of the keeper, whatever session or environment it has. So the keeper can end
exactly the processes of its world, even if the kernel gives no control groups. It waits until the
shim has ended or until the helper sends SIGTERM. Then it ends the rest, removes its record, and
exits.

A keeper outlives the helper. It reads nothing from processes of users.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pliant.nodectl.host import cgroup, memory_limit, procfs, shared_memory
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.root_helper.descriptors import close_all_but, move_up
from pliant.nodectl.root_helper.errors import HelperRefusalError
from pliant.nodectl.root_helper.requests import Launch
from pliant.nodectl.root_helper.users import User, become

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_libc = ctypes.CDLL(None, use_errno=True)

#: The descriptors with which a shim is executed: the request, and the job's folder.
REQUEST_FD, FOLDER_FD = 3, 4
#: Seconds that a keeper and its shim may take to start.
START_TIMEOUT_S = 20.0
#: Seconds between rounds of killing processes that start others.
_KILL_INTERVAL_S = 0.05
#: The PMI mapping of a world whose ranks are all on nodes of their own.
_EACH_A_NODE = f"(vector,(0,{1 << 31},1))"
#: When memory is exhausted, the kernel kills other processes before a keeper.
_SPARED = -900
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Started:
    """A world that was started here."""

    world: str
    folder: str
    uid: int
    keeper: ProcessIdentity
    shim: ProcessIdentity

    def to_line(self) -> str:
        """Return the content of its record."""
        numbers = (self.keeper.pid, self.keeper.start, self.shim.pid, self.shim.start)
        return " ".join(map(str, (self.folder, self.uid, self.keeper.boot, *numbers))) + "\n"

    @classmethod
    def from_line(cls, world: str, line: str) -> Started:
        """Read a record.

        Raises:
            ValueError: it is damaged.
        """
        folder, uid, boot, *numbers = line.split()
        keeper, keeper_start, shim, shim_start = map(int, numbers)
        identities = (
            ProcessIdentity(boot, keeper, keeper_start),
            ProcessIdentity(boot, shim, shim_start),
        )
        return cls(world, folder, int(uid), *identities)

    def shim_fields(self) -> dict[str, int]:
        """Return the shim as answers name it."""
        return {"shim": self.shim.pid, "start": self.shim.start}

    def end(self) -> None:
        """Have the keeper end all processes of the world, now; do nothing if it has ended."""
        _send_signal(self.keeper, signal.SIGTERM)

    def kill_without_keeper(self) -> None:
        """Kill the processes of a world whose keeper was killed, as far as they are found."""
        cgroup.kill(self.shim)
        if self.shim.alive():
            for pid in (*procfs.descendants(self.shim.pid), self.shim.pid):
                who = ProcessIdentity.of(pid)
                if who is not None:
                    _send_signal(who, signal.SIGKILL)


def start(launch: Launch, folder: int, request: int, records: Path, shims: Path) -> ProcessIdentity:
    """Start the keeper of a world, and the shim through it.

    Args:
        launch: checked and used up.
        folder: descriptor of the job's folder.
        request: descriptor of the request, which the shim reads.
        records: folder of root for the record of the world.
        shims: folder of the socket on which the controller listens for shims.

    Returns:
        The shim.

    Raises:
        HelperRefusalError: no shim was started, or the world was started before.
    """
    # What the keeper and the shim report: nothing but the errors of this module.
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run_keeper(launch, (folder, request, writing), records, shims)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        report = _read_within(pipe.fileno(), START_TIMEOUT_S)
    words = report.decode("utf-8", "replace").split(maxsplit=3)
    if len(words) == 3 and words[0] == "shim":
        return ProcessIdentity(procfs.boot_id(), int(words[1]), int(words[2]))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)  # it is a child that was not reaped: no other has this number
    raise HelperRefusalError("start", " ".join(words) or f"not within {START_TIMEOUT_S:.0f} s")


def _read_within(handle: int, seconds: float) -> bytes:
    """Return all that comes through a pipe; nothing if it is not closed in time."""
    found, deadline = b"", time.monotonic() + seconds
    while select.select([handle], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(handle, 4096)
        if not data:
            return found
        found += data
    return b""


def _run_keeper(
    launch: Launch, handles: tuple[int, int, int], records: Path, shims: Path
) -> NoReturn:
    folder, request, report = handles
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP})
        close_all_but({0, 1, 2, *handles})
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc.prctl(_PR_SET_NAME, b"pliant-keeper", 0, 0, 0)
        _set_oom_score(_SPARED)
        os.chdir("/")
        # The shim waits until its record exists: nothing runs that a later helper cannot find.
        waiting, go = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(go)
            _run_shim(launch, (folder, request, report, waiting), records, shims)
        os.close(waiting)
        keeper, shim = ProcessIdentity.of(os.getpid()), ProcessIdentity.of(pid)
        assert keeper is not None
        assert shim is not None
        started = Started(launch.world, launch.folder, launch.user.uid, keeper, shim)
        record = records / launch.world
        try:
            with open(record, "x", encoding="ascii") as file:
                file.write(started.to_line())
        except FileExistsError:
            os.write(report, b"the world was started before")
            os.kill(pid, signal.SIGKILL)
            os._exit(1)
        os.write(report, f"shim {pid} {shim.start}".encode())
        os.write(go, b"1")
        for handle in (go, *handles):
            os.close(handle)
        _keep(shim, launch.max_tasks)
        _remove_shared_memory(launch)
        with suppress(OSError):
            record.unlink()
        os._exit(0)
    except BaseException as error:
        with suppress(OSError):
            os.write(report, f" keeper: {type(error).__name__}: {error}".encode())
        os._exit(1)


def _keep(shim: ProcessIdentity, max_tasks: int) -> None:
    """Wait until the shim has ended or SIGTERM arrives; then end all processes of the world."""
    if max_tasks:
        cgroup.limit_tasks(shim, max_tasks)
    is_ending = False
    while True:
        found = signal.sigtimedwait(
            {signal.SIGTERM, signal.SIGCHLD}, _KILL_INTERVAL_S if is_ending else 3600.0
        )
        is_ending |= found is not None and found.si_signo == signal.SIGTERM
        is_ending |= shim.pid in _reap()
        if is_ending:
            cgroup.kill(shim)
            left = procfs.descendants(os.getpid())
            if not left:
                break
            for pid in left:
                who = ProcessIdentity.of(pid)
                if who is not None:
                    _send_signal(who, signal.SIGKILL)
    cgroup.remove(shim)
    cgroup.sweep_jobs()


def _remove_shared_memory(launch: Launch) -> None:
    """Remove, as the user, the shared memory of ranks whose shim was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            become(launch.user)
            # In worlds that may be joined with others, each rank is a node of its own for MPICH.
            for mapping in (launch.mapping, _EACH_A_NODE):
                for rank in launch.ranks:
                    found = shared_memory.world_segments(launch.world, mapping, rank)
                    shared_memory.unlink(found)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _reap() -> set[int]:
    """Reap the children that have ended."""
    ended = set[int]()
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.add(pid)


def _run_shim(
    launch: Launch, handles: tuple[int, int, int, int], records: Path, shims: Path
) -> NoReturn:
    """Become the user, and execute the shim. Until then, nothing of the user is touched."""
    folder, request, report, waiting = handles
    try:
        os.setsid()
        _set_oom_score(0)
        _enter_groups(launch, records)
        if os.read(waiting, 1) != b"1":
            os._exit(1)  # the keeper has no record of this process
        become(launch.user)
        os.umask(0o077)
        log = _open_log(folder)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        # First out of the way of the numbers that are given away next.
        report, *inherited = map(move_up, (report, null, null, log, request, folder))
        for number, handle in enumerate(inherited):
            os.dup2(handle, number, inheritable=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(sys.executable, _command(shims), _environment(launch.user))
    except BaseException as error:
        with suppress(OSError):
            os.write(report, f" shim: {type(error).__name__}: {error}".encode())
        os._exit(1)


def _enter_groups(launch: Launch, records: Path) -> None:
    """Join the control groups of the world and of its job, and set their limits.

    They belong to root, so the user cannot change them.
    """
    cgroup.enter()
    if launch.memory_bytes:
        order = launch.order
        name = memory_limit.group_name(order.job, order.run, records)
        memory_limit.enter(name, launch.memory_bytes)
    shim = ProcessIdentity.of(os.getpid())
    if shim is not None and launch.cpus:
        cgroup.limit_cpus(shim, launch.cpus)


def _command(shims: Path) -> list[str]:
    module = "pliant.nodectl.shim.user_shim"
    return [sys.executable, "-I", "-m", module, str(shims)]


def _environment(user: User) -> dict[str, str]:
    """Return the whole environment of a shim. Ranks get the one of their job."""
    return {"PATH": _PATH, "LANG": "C.UTF-8", "USER": user.name, "LOGNAME": user.name}


def _open_log(folder: int) -> int:
    """Open the log of the job's shims, as the user, who may have put anything in its place."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open("shim.log", flags, 0o600, dir_fd=folder)
    except OSError:
        return os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)


def _set_oom_score(score: int) -> None:
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))


def _send_signal(who: ProcessIdentity, number: int) -> None:
    """Signal exactly this process: its number may belong to another one by now."""
    try:
        handle = os.pidfd_open(who.pid)
    except OSError:
        return
    try:
        # The handle is of the process that had the number when it was opened.
        if who.alive():
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has just ended
    finally:
        os.close(handle)

"""The keeper of a world: a process of root that starts the shim as the user and ends what is left.

The helper forks a keeper for each world, always one ahead of the next order. The keeper executes a
shim that waits (`waiting_shim`), which becomes the user when the order has come. The keeper is the
*subreaper* of the shim: a process of the job that loses its parent becomes a child of the keeper,
whatever session or environment it has. So the keeper can end exactly the processes of its world,
even if the kernel gives no control groups. It waits until the shim has ended or until the helper
sends SIGTERM. Then it ends the rest, removes its record, and exits.

A keeper outlives the helper. It reads nothing from processes of users.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from pliant.nodectl.host import cgroup, memory_limit, procfs, shared_memory
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.root_helper.become_user import User, become
from pliant.nodectl.root_helper.descriptors import (
    CHANNEL_FD,
    MAX_MESSAGE_BYTES,
    close_all_but,
    receive,
)
from pliant.nodectl.root_helper.errors import HelperRefusalError
from pliant.nodectl.root_helper.group_limits import GroupLimits
from pliant.nodectl.root_helper.request_checks import Launch

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_libc = ctypes.CDLL(None, use_errno=True)

#: Seconds that a keeper and its shim may take to start.
START_TIMEOUT_S = 20.0
#: What keeper and shim report when the shim was started: its process and start time.
_STARTED = re.compile(r"shim ([0-9]{1,10}) ([0-9]{1,20})", re.ASCII)
_MAX_REPORT_BYTES = 4096
#: Seconds that the removal of shared memory may take. Its user could stop it for ever.
_REMOVAL_S = 10.0
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


class Keeper:
    """A keeper that has not got its world yet.

    Its shim has loaded its modules, or is about to. So a job does not wait for a new interpreter.
    """

    def __init__(self, records: Path, shims: Path) -> None:
        """Fork it.

        Args:
            records: folder of root for the records of worlds.
            shims: folder of the socket on which the controller listens for shims.

        Raises:
            OSError: it cannot be forked.
        """
        self._records = records
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.pid = os.fork()
            if self.pid == 0:
                _run_keeper(theirs, records, shims)

    def start(self, launch: Launch, folder: int, request: int) -> ProcessIdentity:
        """Hand a world over, and return its shim.

        Args:
            launch: checked and used up.
            folder: descriptor of the job's folder.
            request: descriptor of the request, which the shim reads.

        Raises:
            HelperRefusalError: no shim was started, or the world was started before.
            OSError: the keeper has ended.
        """
        # What the keeper and the shim report: nothing but the errors of this package.
        reading, writing = os.pipe2(os.O_CLOEXEC)
        with os.fdopen(reading, "rb") as pipe:
            try:
                message = WorldToKeep.of(launch, self._records).to_json()
                socket.send_fds(self._channel, [message], [folder, request, writing])
            finally:
                os.close(writing)
                self.close()
            report = _read_within(pipe.fileno(), START_TIMEOUT_S).decode("utf-8", "replace")
        if found := _STARTED.fullmatch(report):
            return ProcessIdentity(procfs.boot_id(), int(found[1]), int(found[2]))
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)  # a child that was not reaped: no other has its pid
        why = report.strip() or f"not within {START_TIMEOUT_S:.0f} s"
        raise HelperRefusalError("start", why)

    def close(self) -> None:
        """Close the connection. A keeper without a world ends then."""
        self._channel.close()


@dataclass(frozen=True, slots=True)
class WorldToKeep:
    """What the helper tells a keeper about its world."""

    world: str
    folder: str
    user: User
    mapping: str
    ranks: tuple[int, ...]
    limits: GroupLimits

    @classmethod
    def of(cls, launch: Launch, records: Path) -> WorldToKeep:
        """Return what a keeper must know of a launch."""
        name = memory_limit.group_name(launch.order.job, launch.order.run, records)
        return cls(
            launch.world,
            launch.folder,
            launch.user,
            launch.mapping,
            launch.ranks,
            GroupLimits(launch.max_tasks, name, launch.memory_bytes, launch.cpus),
        )

    def to_json(self) -> bytes:
        """Return the message."""
        return json.dumps(asdict(self)).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> WorldToKeep:
        """Read a message, which only a helper can have sent."""
        fields = json.loads(data)
        user = User.from_record(fields.pop("user"))
        limits = GroupLimits.from_record(fields.pop("limits"))
        return cls(user=user, limits=limits, ranks=tuple(fields.pop("ranks")), **fields)


def _read_within(handle: int, seconds: float) -> bytes:
    """Return all that comes through a pipe; nothing if it is not closed in time, or too much."""
    found, deadline = b"", time.monotonic() + seconds
    while len(found) <= _MAX_REPORT_BYTES and (left := deadline - time.monotonic()) > 0:
        if select.select([handle], [], [], left)[0]:
            data = os.read(handle, _MAX_REPORT_BYTES)
            if not data:
                return found
            found += data
    return b""


def _run_keeper(channel: socket.socket, records: Path, shims: Path) -> NoReturn:
    handles: list[int] = []
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP})
        close_all_but({0, 1, 2, channel.fileno()})
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc.prctl(_PR_SET_NAME, b"pliant-keeper", 0, 0, 0)
        _set_oom_score(_SPARED)
        os.chdir("/")
        shim, to_shim = _fork_shim(shims)
        data, handles = receive(channel, MAX_MESSAGE_BYTES, 3)
        channel.close()
        if not data:
            _end_unused(shim)  # the helper has ended; nothing was started
            os._exit(0)
        who = ProcessIdentity.of(shim)
        if who is None or not who.alive():  # killed while it waited, perhaps by lack of memory
            to_shim.close()
            _end_unused(shim)
            shim, to_shim = _fork_shim(shims)
        _start_world(WorldToKeep.from_json(data), handles, records, shim, to_shim)
        os._exit(0)
    except BaseException as error:
        with suppress(OSError, IndexError):
            os.write(handles[2], f" keeper: {type(error).__name__}: {error}".encode())
        os._exit(1)


def _end_unused(pid: int) -> None:
    """End a shim that has no world; it may have been killed already."""
    shim = ProcessIdentity.of(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if shim is not None:
        cgroup.remove(shim)


def _start_world(
    world: WorldToKeep, handles: list[int], records: Path, pid: int, to_shim: socket.socket
) -> None:
    """Write the record, hand the world to the shim, and stay until its processes have ended."""
    _, _, report = handles
    keeper, shim = ProcessIdentity.of(os.getpid()), ProcessIdentity.of(pid)
    assert keeper is not None
    assert shim is not None
    # The shim waits until its record exists: nothing runs that a later helper cannot find.
    started = Started(world.world, world.folder, world.user.uid, keeper, shim)
    record = records / world.world
    try:
        with open(record, "x", encoding="ascii") as file:
            file.write(started.to_line())
    except FileExistsError:
        os.write(report, b"the world was started before")
        os.kill(pid, signal.SIGKILL)
        return
    os.write(report, f"shim {pid} {shim.start}".encode())
    with to_shim:
        message = {"user": asdict(world.user), "limits": asdict(world.limits)}
        socket.send_fds(to_shim, [json.dumps(message).encode("ascii")], handles)
    for handle in handles:
        os.close(handle)
    _keep(shim)
    _remove_shared_memory(world)
    with suppress(OSError):
        record.unlink()


def _fork_shim(shims: Path) -> tuple[int, socket.socket]:
    """Execute a shim that waits; return its process and the socket on which it waits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                _set_oom_score(0)
                os.dup2(theirs.fileno(), CHANNEL_FD)
                os.set_inheritable(CHANNEL_FD, True)  # dup2 leaves it as it is if it has the number
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                module = "pliant.nodectl.root_helper.waiting_shim"
                command = [sys.executable, "-I", "-m", module, str(shims)]
                os.execve(sys.executable, command, {"PATH": _PATH, "LANG": "C.UTF-8"})
            finally:
                os._exit(1)
    return pid, ours


def _keep(shim: ProcessIdentity) -> None:
    """Wait until the shim has ended or SIGTERM arrives; then end all processes of the world."""
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


def _remove_shared_memory(world: WorldToKeep) -> None:
    """Remove, as the user, the shared memory of ranks whose shim was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            become(world.user)
            # In worlds that may be joined with others, each rank is a node of its own for MPICH.
            for mapping in (world.mapping, _EACH_A_NODE):
                for rank in world.ranks:
                    found = shared_memory.world_segments(world.world, mapping, rank)
                    shared_memory.unlink(found)
        finally:
            os._exit(0)
    deadline = time.monotonic() + _REMOVAL_S
    while pid not in _reap():
        left = max(0.0, deadline - time.monotonic())
        if signal.sigtimedwait({signal.SIGCHLD}, left) is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return


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

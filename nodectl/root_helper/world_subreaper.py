"""The subreaper of a world: a process of root that starts the shim as the user and ends the rest.

A few subreapers wait for orders (`subreaper_pool`). Each has forked a shim that waits, too
(`prestarted_shim`), and that becomes the user when the order has come. A process of the job that
loses its parent becomes a child of the subreaper (``PR_SET_CHILD_SUBREAPER``), even if it has made
a session of its own or changed its environment. So the subreaper can end exactly the processes of
its world, even if the kernel gives no control groups. It waits until the shim has ended or until
the helper sends SIGTERM. Then it ends the remaining processes, removes its record, and exits.

A subreaper outlives the helper. It reads nothing from processes of users.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pliant.nodectl.host import cgroup, memory_limit, procfs, shared_memory
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.root_helper import prestarted_shim
from pliant.nodectl.root_helper.become_user import User, become
from pliant.nodectl.root_helper.cgroup_limits import GroupLimits
from pliant.nodectl.root_helper.descriptors import MAX_MESSAGE_BYTES, close_all_but, receive
from pliant.nodectl.root_helper.started_worlds import Started, send_signal

if TYPE_CHECKING:
    # It loads the package cryptography. A subreaper has no use for it.
    from pliant.nodectl.root_helper.request_verification import CheckedLaunch

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_libc = ctypes.CDLL(None, use_errno=True)

#: Seconds that the removal of shared memory may take. Its user could stop it for ever.
_REMOVAL_S = 10.0
#: Seconds between rounds of killing processes that start others.
_KILL_INTERVAL_S = 0.05
#: The PMI mapping of a world whose ranks are all on nodes of their own.
_EACH_A_NODE = f"(vector,(0,{1 << 31},1))"
#: When memory is exhausted, the kernel kills other processes before a subreaper.
_SPARED = -900
#: Signals that Python ignores, so that writing fails instead of ending the process.
_IGNORED = {signal.SIGPIPE, signal.SIGXFSZ}


@dataclass(frozen=True, slots=True)
class WorldOrder:
    """The order with which the helper makes a waiting subreaper start a world (a set of ranks)."""

    world: str
    folder: str
    user: User
    mapping: str
    ranks: tuple[int, ...]
    limits: GroupLimits

    @classmethod
    def of(cls, launch: CheckedLaunch, records: Path) -> WorldOrder:
        """Return the order to start the ranks of a checked request.

        Args:
            launch: the checked request.
            records: folder of root with the records of started ranks.
        """
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
        """Return the message as bytes for the socket of the subreaper."""
        return json.dumps(asdict(self)).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> WorldOrder:
        """Read the order to a subreaper from bytes, which only a helper can have sent."""
        fields = json.loads(data)
        user = User.from_record(fields.pop("user"))
        limits = GroupLimits.from_record(fields.pop("limits"))
        return cls(user=user, limits=limits, ranks=tuple(fields.pop("ranks")), **fields)


def run_subreaper(channel: socket.socket, records: Path, shims: Path) -> NoReturn:
    """Run a subreaper in a newly forked process: start ranks when an order arrives, and watch them.

    Exit when no process of the ranks is left, or when the helper ends without an order.

    Args:
        channel: the connection to the helper, to which the subreaper first sends its process id
            and start time.
        records: folder of root with the records of started ranks.
        shims: folder of the socket on which the controller listens for shims.
    """
    handles: list[int] = []
    try:
        os.setsid()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN if number in _IGNORED else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP})
        close_all_but({0, 1, 2, channel.fileno()})
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc.prctl(_PR_SET_NAME, b"subreaper", 0, 0, 0)
        _set_oom_score(_SPARED)
        subreaper = ProcessIdentity.of(os.getpid())
        assert subreaper is not None
        channel.send(f"{subreaper.pid} {subreaper.start}".encode("ascii"))
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
        _start_world(WorldOrder.from_json(data), handles, records, shim, to_shim)
        os._exit(0)
    except BaseException as error:
        with suppress(OSError, IndexError):
            os.write(handles[2], f" subreaper: {type(error).__name__}: {error}".encode())
        os._exit(1)


def _end_unused(pid: int) -> None:
    """Kill and reap a waiting shim that gets no ranks to start; remove its control group."""
    shim = ProcessIdentity.of(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if shim is not None:
        cgroup.remove(shim)


def _start_world(
    world: WorldOrder, handles: list[int], records: Path, pid: int, to_shim: socket.socket
) -> None:
    """Start the world (set of ranks) in the waiting shim, and wait until it has ended.

    The record of the world is written before the start, and removed when no process of the world is
    left. If the record exists already, the world was started before: report that and kill the shim.

    Args:
        world: the order to start the world.
        handles: descriptors of the job's folder, of the request, and of the pipe for the report.
        records: folder of the records.
        pid: the process id of the shim.
        to_shim: the connection to the shim.
    """
    _, _, report = handles
    subreaper, shim = ProcessIdentity.of(os.getpid()), ProcessIdentity.of(pid)
    assert subreaper is not None
    assert shim is not None
    # The shim waits until its record exists: nothing runs that a later helper cannot find.
    started = Started(world.world, world.folder, world.user.uid, subreaper, shim)
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
    _reap_until_ended(shim)
    _remove_shared_memory(world)
    with suppress(OSError):
        record.unlink()


def _fork_shim(shims: Path) -> tuple[int, socket.socket]:
    """Fork a shim that waits; return its process id and our end of the connection to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setsid()
                _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
                _set_oom_score(0)
                close_all_but({0, 1, 2, theirs.fileno()})
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                code = prestarted_shim.wait_for_world(theirs, shims)
            finally:
                os._exit(code)
    return pid, ours


def _reap_until_ended(shim: ProcessIdentity) -> None:
    """Wait until the shim has ended or SIGTERM arrives; then kill all processes of its ranks.

    Return when they have ended.
    """
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
                    send_signal(who, signal.SIGKILL)
    cgroup.remove(shim)
    cgroup.sweep_jobs()


def _remove_shared_memory(world: WorldOrder) -> None:
    """Remove the shared memory that MPI ranks have left, in a process of the job's user."""
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
    """Reap the children that have ended, and return their process ids."""
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

"""The socket of the root helper, on which only the controller of this node may send requests.

Each message is one JSON object, and each has one answer. A process that is not of the controller's
account is disconnected before anything of it is read. Requests are carried out one after the other.

=========  =====================================  ==================================================
request    fields                                 answer
=========  =====================================  ==================================================
describe                                          node, cluster, jobs (folder of the jobs' folders),
                                                  orders (version of launch orders)
controllers                                       by name: the version of the groups, or empty
start      order, one descriptor (the content)    shim, start: its process and start time
find       world                                  shim, start; or neither, if it does not run
end        world                                  found: whether it ran; its processes are killed
cpus       world, cpus                            enforced: whether the kernel enforces the limit
remove     order (to remove checkpoints)          problem: why something is left, or empty
=========  =====================================  ==================================================

A refusal is answered with ``refused`` (its kind) and ``reason``.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.nodectl.host import cgroup
from pliant.nodectl.host.containment import find_cgroup_controllers
from pliant.nodectl.root_helper.audit_log import AuditLog
from pliant.nodectl.root_helper.config import HelperConfig
from pliant.nodectl.root_helper.folders.checkpoint_removal import fork_removal
from pliant.nodectl.root_helper.folders.job_folders import JobFolders
from pliant.nodectl.root_helper.helper_errors import HelperConfigError, HelperRefusalError
from pliant.nodectl.root_helper.request_verification import RequestVerifier
from pliant.nodectl.root_helper.started_worlds import Started
from pliant.nodectl.root_helper.subreaper_pool import SubreaperPool
from pliant.nodectl.world_folder import WORLD_NAME
from pliant.protos.daemons.peer_credentials import peer_process
from pliant.protos.daemons.service_manager import ServiceManager
from pliant.protos.signed_orders.launch_order import VERSION

#: An order has at most 16 KB, in hexadecimal digits.
MAX_MESSAGE_BYTES = 48 << 10
MAX_CONNECTIONS = 8
MAX_WORLDS = 4096
#: Processes that remove checkpoints at the same time, and those of one user, who can stop them.
MAX_REMOVALS, MAX_REMOVALS_OF_USER = 8, 2
#: Seconds that a removal may take.
REMOVAL_TIMEOUT_S = 600.0
#: Messages that may come at once, and then in a second.
BURST, RATE_PER_S = 1000, 200.0
#: Seconds between two rounds of clean-up, and without a request before an early one.
_COLLECT_INTERVAL_S, _QUIET_S = 0.5, 0.05


@dataclass(slots=True)
class _Removal:
    """A forked process that removes the checkpoints of a job as the job's user."""

    uid: int
    #: When it is killed, on the monotonic clock.
    until: float
    is_killed: bool = False


class HelperService:
    """Answers the requests of the node's controller. Started jobs outlive this process."""

    def __init__(
        self,
        config: HelperConfig,
        log: AuditLog,
        clock: Callable[[], float] = time.time,
        manager: ServiceManager | None = None,
    ) -> None:
        """Lock the helper's files, and continue to serve the jobs that an earlier helper started.

        Raises:
            HelperConfigError: another helper is running, or a stored file is damaged.
        """
        self._config, self._log = config, log
        self._manager = manager or ServiceManager()
        self._lock = _lock(config)
        try:
            self._verifier = RequestVerifier(config, clock)
        except (OSError, ValueError) as error:
            raise HelperConfigError(f"{config.state}: {error}") from None
        self._controllers = find_cgroup_controllers()
        self._records = config.run / "started"
        self._folders = JobFolders(config.run / "jobs")
        self._connections: dict[socket.socket, None] = {}
        self._selector = selectors.DefaultSelector()
        self._allowance, self._counted = float(BURST), time.monotonic()
        self._listener = _listen(config)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        #: The worlds at the last look. Subreapers that an earlier helper forked are no children.
        self._worlds = set[str]()
        self._is_unclean, self._collect_at = True, 0.0
        #: By process, the removals of checkpoints that have not ended.
        self._removals: dict[int, _Removal] = {}
        try:
            self._subreapers = SubreaperPool(self._records, config.shims)
        except OSError as error:
            raise HelperConfigError(f"cannot execute {sys.executable}: {error}") from None

    def run(self) -> None:
        """Serve the controller and watch the subreapers until the process is ended."""
        self._log.note(f"serving node {self._config.node} of cluster {self._config.cluster}")
        self._manager.ready(f"serving node {self._config.node} of cluster {self._config.cluster}")
        while True:
            self._manager.alive()
            ready = self._selector.select(
                _COLLECT_INTERVAL_S if self._subreapers.is_full else _QUIET_S
            )
            for key, _ in ready:
                key.data(key.fileobj)
            # Not between the starts of a burst: forks would take processor time from the jobs.
            if not ready or time.monotonic() >= self._collect_at:
                self._collect()
                with suppress(OSError):  # processes or memory are exhausted: try again
                    self._subreapers.refill()
                self._collect_at = time.monotonic() + _COLLECT_INTERVAL_S

    # ------------------------------------------------------------------ connections

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            sock, _ = listener.accept()
            pid, uid = peer_process(sock)
            if uid != self._config.account_uid:
                self._log.note_refusal("peer", f"process {pid} of user {uid} is not the controller")
                sock.close()
                return
            if len(self._connections) >= MAX_CONNECTIONS:
                self._close(next(iter(self._connections)))
            sock.setblocking(False)
            self._connections[sock] = None
            self._selector.register(sock, selectors.EVENT_READ, self._serve)

    def _close(self, sock: socket.socket) -> None:
        del self._connections[sock]
        self._selector.unregister(sock)
        sock.close()

    def _serve(self, sock: socket.socket) -> None:
        if sock not in self._connections:
            return  # closed in this round
        handles: list[int] = []
        try:
            # One more byte and descriptor than allowed, so that neither is cut off silently.
            flags = socket.MSG_CMSG_CLOEXEC
            data, handles, got, _ = socket.recv_fds(sock, MAX_MESSAGE_BYTES + 1, 2, flags)
            if not data:
                self._close(sock)
                return
            is_whole = not got & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
            answer = self._answer(sock, data if is_whole else b"", handles)
            if answer is None:
                self._close(sock)
                return
            sock.send(json.dumps(answer).encode("ascii"))
        except OSError:  # it is gone, or does not read its answers
            if sock in self._connections:
                self._close(sock)
        finally:
            for handle in handles:
                os.close(handle)

    # ------------------------------------------------------------------ requests

    def _answer(
        self, sock: socket.socket, data: bytes, handles: list[int]
    ) -> dict[str, Any] | None:
        """Carry out a request, and return the answer; None if a forked process will answer."""
        try:
            self._count_message()
            try:
                message = json.loads(data)
                operation, world = message["op"], message.get("world", "")
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                raise HelperRefusalError("message", "not a message of a controller") from None
            if operation == "start":
                return self._start(message, handles)
            if operation == "describe":
                jobs = str(self._folders.path)
                names = {"node": self._config.node, "cluster": self._config.cluster}
                return {**names, "jobs": jobs, "orders": str(VERSION)}
            if operation == "controllers":
                return dict(self._controllers)
            if operation == "remove":
                self._remove_checkpoints(sock, message)
                return None
            return self._act_on_world(operation, self._find(world), message)
        except HelperRefusalError as error:
            self._log.note_refusal(error.refusal, str(error))
            return {"refused": error.refusal, "reason": str(error)}
        except Exception as error:  # no request may end the helper, which all users need
            self._log.note_refusal("internal", f"{type(error).__name__}: {error}")
            return {"refused": "internal", "reason": "an internal error; see the helper's log"}

    def _act_on_world(
        self, operation: object, started: Started | None, message: dict[str, Any]
    ) -> dict[str, Any]:
        if operation == "find":
            return {} if started is None else started.shim_fields()
        if operation == "end":
            return self._end(started)
        if operation == "cpus":
            return self._limit_cpus(started, message)
        raise HelperRefusalError("message", "there is no such operation")

    def _count_message(self) -> None:
        now = time.monotonic()
        self._allowance += (now - self._counted) * RATE_PER_S
        self._allowance, self._counted = min(float(BURST), self._allowance) - 1, now
        if self._allowance < 0:
            self._allowance = 0
            raise HelperRefusalError("rate", f"more than {RATE_PER_S:.0f} requests in a second")

    def _start(self, message: dict[str, Any], handles: list[int]) -> dict[str, Any]:
        try:
            signed, (content,) = bytes.fromhex(message["order"]), handles
        except (LookupError, TypeError, ValueError):
            raise HelperRefusalError("message", "no order, or no content") from None
        launch = self._verifier.check(signed, content)
        order = launch.order
        if self._find(launch.world) is not None:
            raise HelperRefusalError("running", f"world {launch.world} was started before")
        if len(os.listdir(self._records)) >= MAX_WORLDS:
            raise HelperRefusalError("worlds", f"more than {MAX_WORLDS} worlds run here")
        try:
            folder = self._folders.open(launch.folder, launch.user)
        except OSError as error:
            raise HelperRefusalError("job-folder", f"{launch.folder}: {error.strerror}") from None
        try:
            self._verifier.use(order)
            shim = self._subreapers.start(launch, folder, content)
        except OSError as error:
            self._is_unclean = True
            raise HelperRefusalError("start", f"cannot fork: {error.strerror}") from None
        except HelperRefusalError:
            self._is_unclean = True
            raise
        finally:
            os.close(folder)
        self._log.note(
            f"started {launch.world}: job {launch.folder}, epoch {order.epoch}, user {order.uid} "
            f"({launch.user.name}), shim {shim.pid}"
        )
        return {"shim": shim.pid, "start": shim.start}

    def _remove_checkpoints(self, sock: socket.socket, message: dict[str, Any]) -> None:
        """Fork a process that removes a job's checkpoints as its user, and answers the request."""
        try:
            signed = bytes.fromhex(message["order"])
        except (LookupError, TypeError, ValueError):
            raise HelperRefusalError("message", "no order") from None
        order, user = self._verifier.check_removal(signed)
        self._check_number_of_removals(user.uid)
        self._verifier.use(order)
        try:
            pid = fork_removal(Path(order.folder), user, sock)
        except OSError as error:
            raise HelperRefusalError("start", f"cannot fork: {error.strerror}") from None
        self._removals[pid] = _Removal(user.uid, time.monotonic() + REMOVAL_TIMEOUT_S)
        self._log.note(f"removing {order.folder}: job {order.job}, user {order.uid} ({user.name})")

    def _check_number_of_removals(self, uid: int) -> None:
        """Refuse a removal if one user, or all users together, have too many that have not ended.

        A process that was killed may still wait for a file system that does not answer. It counts
        in the limit of its user, but not in that of all users, so nobody can block the others.

        Raises:
            HelperRefusalError: one of the two limits is reached.
        """
        if sum(each.uid == uid for each in self._removals.values()) >= MAX_REMOVALS_OF_USER:
            reason = f"{MAX_REMOVALS_OF_USER} removals of user {uid} have not ended yet"
            raise HelperRefusalError("rate", reason)
        if sum(not each.is_killed for each in self._removals.values()) >= MAX_REMOVALS:
            raise HelperRefusalError("rate", f"{MAX_REMOVALS} removals have not ended yet")

    def _end(self, started: Started | None) -> dict[str, Any]:
        if started is not None:
            self._log.note(f"ending {started.world} of user {started.uid}")
            started.end()
        return {"found": started is not None}

    def _limit_cpus(self, started: Started | None, message: dict[str, Any]) -> dict[str, Any]:
        try:
            cpus = self._verifier.check_cpus(message.get("cpus"))
        except ValueError as error:
            raise HelperRefusalError("message", str(error)) from None
        done = started is not None and bool(cpus) and cgroup.limit_cpus(started.shim, cpus)
        return {"enforced": done}

    # ------------------------------------------------------------------ what runs here

    def _find(self, world: object) -> Started | None:
        """Return the record of the ranks called ``world``; None if none of them runs here."""
        if not isinstance(world, str) or not WORLD_NAME.fullmatch(world):
            return None
        try:
            line = (self._records / world).read_text(encoding="ascii")
            started = Started.from_line(world, line)
        except (FileNotFoundError, ValueError):
            return None
        return started if started.subreaper.alive() or started.shim.alive() else None

    def _collect(self) -> None:
        """Reap subreapers, and remove the files and shared memory that ended jobs have left."""
        with suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG)[0]:
                self._removals.pop(ended, None)
                self._is_unclean = True
        for pid, removal in self._removals.items():
            if removal.until < time.monotonic() and not removal.is_killed:
                os.kill(pid, signal.SIGKILL)  # a child of this process: the number is still its own
                removal.is_killed = True
        worlds = set(os.listdir(self._records))
        if not self._is_unclean and worlds >= self._worlds:  # no world has ended
            self._worlds = worlds
            return
        self._worlds, used = worlds, set[str]()
        for world in worlds:
            started = self._find(world)
            if started is None:
                # The subreaper was killed, or the host was restarted.
                with suppress(OSError):
                    (self._records / world).unlink()
            else:
                used.add(started.folder)
                if not started.subreaper.alive():
                    started.kill_without_subreaper()
        self._is_unclean = self._folders.remove_unused(used)


def _listen(config: HelperConfig) -> socket.socket:
    """Return the listening socket for the controller, in place of an earlier helper's."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = config.socket
    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    mask = os.umask(0o177)
    try:
        sock.bind(f"/proc/self/fd/{folder}/{path.name}")  # its own path may be too long
        os.chown(path.name, config.account_uid, config.account_gid, dir_fd=folder)
        sock.listen(MAX_CONNECTIONS)
    finally:
        os.umask(mask)
        os.close(folder)
    sock.setblocking(False)
    return sock


def _lock(config: HelperConfig) -> int:
    handle = os.open(config.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise HelperConfigError(f"{config.state}: another root helper is running") from None
    return handle

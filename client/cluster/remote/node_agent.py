"""A program on a host of a user's own cluster: makes the host a node, and ends the node.

``start`` is called over SSH and returns when the node controller runs. ``serve`` is a task of
Slurm, which runs until its standard input ends, or Slurm ends it. Both read start messages from
standard input, because command lines can be seen by other users. Answers are JSON lines on standard
output. ``stub`` is the program of a placeholder job: a federation submits it to another Pliant
server, and the processors of the job become a node of the federation. A stub reads its start
message from the environment.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import ClusterSpec
from pliant.client.cluster.daemons import Daemon, tail
from pliant.client.cluster.local_cluster import CONTROLLER, STOP_TIMEOUT_S, LocalCluster
from pliant.client.cluster.remote.node_start_message import (
    NodeStartMessage,
    decode_start_messages,
    node_folder,
)
from pliant.client.cluster.shutdown import end_leftovers, end_remaining_processes, stop
from pliant.core.support.base_error import PliantError
from pliant.protos.address import TcpAddress, local_address, parse_address
from pliant.protos.daemons.private_paths import UntrustedPathError, open_private

MODULE = "pliant.client.cluster.remote.node_agent"
#: Marks a folder that was made for a node, and may be removed.
_MARK = "private-node"
#: After a signal of Slurm, the server has this long to save jobs before their nodes end.
GRACE_S = 20.0
_POLL_S = 0.5
_MAX_MESSAGES = 1 << 24
#: The variable with the start message of a stub. The environment of a job is private, but its
#: command line is not.
START_VARIABLE = "STUB_START_MESSAGE"
#: Variables of a stub's own job, which must not reach the jobs that run on the stub.
_JOB_PREFIXES = ("PLIANT_", "PMI", "MPI", "HYDRA", "FI_", "UCX_", "OMPI_", "PRTE_")
#: Seconds between two attempts of a stub to connect to its server, and the limit of an attempt.
_PROBE_S = 2.0


def main(argv: list[str]) -> int:
    """Carry out the action that the first word of the command line names; return the exit code.

    The actions are ``start``, ``stop NODE_DIR CLUSTER_ID NAME``, ``log ...``, ``serve`` and
    ``stub``.
    """
    action, *words = argv
    try:
        if action == "start":
            (message,) = decode_start_messages(sys.stdin.buffer.readline(_MAX_MESSAGES))
            start(message)
            _answer(node=message.name, event="started")
        elif action == "serve":
            return _serve()
        elif action == "stub":
            return _run_as_stub(float(words[0]))
        elif action == "stop":
            return _stop(node_folder(*words[:3]), keep_jobs="keep-jobs" in words[3:])
        else:
            node = _node_cluster(node_folder(*words[:3]))
            running = any(daemon.running_pid() for daemon in node.all_daemons()[1:])
            log = tail(node.node_file(words[2], "nodectl.log"), 5)
            _answer(node=words[2], running=running, log=log)
    except (_StepError, PliantError, OSError) as error:
        _answer(event="failed", step=getattr(error, "step", action), error=str(error))
        return 1
    return 0


class _StepError(Exception):
    """A step of starting a node failed. The error is sent to the machine of the server."""

    def __init__(self, step: str, message: str) -> None:
        self.step = step
        super().__init__(message)


@contextmanager
def _step(name: str) -> Iterator[None]:
    try:
        yield
    except (PliantError, OSError) as error:
        raise _StepError(name, str(error)) from None


def _answer(**fields: Any) -> None:
    """Print a JSON line, which the program that started this agent reads.

    An error is ignored if standard output is closed.
    """
    with suppress(OSError):
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def _node_cluster(folder: str) -> LocalCluster:
    """Return a `LocalCluster` for the state folder of a node, to manage the node's controller.

    The server of the node runs on another host.
    """
    return LocalCluster(folder, os.path.join(folder, "run"), ClusterSpec(nodes=0))


def start(message: NodeStartMessage) -> Daemon:
    """Make this host the node that a start message describes, and start its controller.

    A controller that runs already is replaced; its jobs continue.

    Raises:
        _StepError: a step failed.
    """
    node = _node_cluster(message.folder)
    with _step("state folder"):
        _make_folder(Path(message.folder))
    for daemon in node.all_daemons()[1:]:
        daemon.end(STOP_TIMEOUT_S)
    if message.token:
        with _step("join"):
            from pliant.client.node_joining import join
            from pliant.protos.identity.node_files import DIRECTORY
            from pliant.protos.node_joining.join_token import parse_token

            identity = Path(message.folder, DIRECTORY)
            shutil.rmtree(identity, ignore_errors=True)
            join(parse_token(message.token), identity, address=message.server)
    with _step("start the controller"):
        daemon = _controller(node, message)
        daemon.start(node.environment())
    return daemon


def _make_folder(folder: Path) -> None:
    """Make a folder that only this user can use.

    Raises:
        UntrustedPathError, OSError: the folder cannot be made, or another user could change it.
    """
    if not folder.parent.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_folder(folder)
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    (folder / _MARK).touch()


def _check_folder(folder: Path) -> None:
    """Refuse a folder that another user could have made or could change.

    Anybody can make a folder of this name among temporary files, with process ids in it, or a link
    of this name to another private folder of this user.

    Raises:
        UntrustedPathError, OSError: the folder is no folder of this user alone.
    """
    if folder.is_symlink():
        raise UntrustedPathError(f"{folder} is a symbolic link: remove it, or use --node-dir")
    os.close(open_private(folder))


def _controller(node: LocalCluster, message: NodeStartMessage) -> Daemon:
    name = message.name
    log, lock = node.node_file(name, "nodectl.log"), node.node_file(name, "lock")
    pid_file = os.path.join(node.run, f"node-{name}.pid")
    command = [*CONTROLLER, "--name", name, *message.options]
    if message.secret_file:
        command += ["--address-file", message.address_file, "--secret-file", message.secret_file]
        server = _server_address(message)
        if server and (address := local_address([server])):
            command += ["--address", address]
    return Daemon(f"node-{name}", command, CONTROLLER[-1], name, pid_file, log, lock)


def _stop(folder: str, *, keep_jobs: bool) -> int:
    left = take_down(folder, keep_jobs=keep_jobs)
    _answer(event="stopped", left=left)
    return 1 if left else 0


def take_down(folder: str, *, keep_jobs: bool = False) -> list[str]:
    """End the node of a folder with all its processes, and remove the folder.

    With `keep_jobs`, end the controller only.

    Returns:
        A text for each process that could not be ended. If processes of jobs are left, a text names
        the log that lists them.

    Raises:
        UntrustedPathError: another user could have changed the folder.
    """
    if not os.path.exists(os.path.join(folder, _MARK)):
        return []
    _check_folder(Path(folder))
    node, silent = _node_cluster(folder), _ignore
    stop(node, silent, keep_jobs=keep_jobs)
    pids = end_leftovers(node, keep_jobs=keep_jobs)
    if keep_jobs:
        return [f"process {pid}" for pid in pids]
    nodes = end_remaining_processes(node, silent)
    left = [f"process {pid} ({' '.join(process_table.command_line(pid))})" for pid in pids]
    left += [f"processes of jobs, see {node.node_file(name, 'nodectl.log')}" for name in nodes]
    if not left:
        shutil.rmtree(folder, ignore_errors=True)
    return left


def _ignore(_: str) -> None:
    """Do nothing: the callback for texts about progress, which nobody reads here."""


# ------------------------------------------------------------------ a task of Slurm


def _serve() -> int:
    """Run a node in this Slurm task until standard input or the controller ends, or a signal comes.

    Return the exit code.
    """
    name = os.environ.get("SLURMD_NODENAME", "")
    wakeup = _SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    process_table.adopt_orphans()
    select.select([sys.stdin.fileno(), wakeup.reading], [], [])
    if wakeup.read() or not (line := sys.stdin.buffer.readline(_MAX_MESSAGES)):
        return 0  # the allocation ended before the server was ready
    message = next((each for each in decode_start_messages(line) if each.name == name), None)
    if message is None:
        raise _StepError(
            "order", f"there is no start message for node {name or '(SLURMD_NODENAME)'}"
        )
    try:
        try:
            daemon = start(message)
        except _StepError as error:
            _answer(node=name, event="failed", step=error.step, error=str(error))
            return 1
        _answer(node=name, event="started")
        code = _wait(name, daemon, wakeup)
    finally:
        left = take_down(message.folder)
        process_table.reap_children()
    _answer(node=name, event="ended", left=left)
    return 1 if left else code


def _wait(name: str, daemon: Daemon, wakeup: _SignalPipe) -> int:
    """Wait until standard input or the controller ends, or `GRACE_S` has passed after a signal.

    A signal of Slurm or the end of the controller is reported as a JSON line on standard output.

    Args:
        name: the name of the node.
        daemon: the controller.
        wakeup: receives the signals.

    Returns:
        The exit code: 1 if the controller has ended, else 0.
    """
    deadline, stdin = float("inf"), sys.stdin.fileno()
    while time.monotonic() < deadline:
        ready = select.select([stdin, wakeup.reading], [], [], _POLL_S)[0]
        if stdin in ready and not os.read(stdin, 1 << 16):
            return 0
        if wakeup.reading in ready and (number := wakeup.read()):
            if deadline == float("inf"):
                deadline = time.monotonic() + GRACE_S
            _answer(node=name, event="signal", number=number)
        if not daemon.running_pid():
            _answer(node=name, event="failed", step="controller", error=daemon.tail(5))
            return 1
    return 0


# ------------------------------------------------------------------ a job of another server


def _run_as_stub(orphan_s: float) -> int:
    """Make the processor of this placeholder job a node of a federation; return the exit code.

    The federation submitted the job to another Pliant server. The node ends after a signal, if its
    controller ends, or if the federation's server could not be reached for ``orphan_s`` seconds.
    """
    text = os.environ.pop(START_VARIABLE, "")
    for name in list(os.environ):
        if name.startswith(_JOB_PREFIXES):  # they describe this job to MPI and to appkit
            del os.environ[name]
    (message,) = decode_start_messages(text.encode("utf-8"))
    wakeup = _SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    process_table.adopt_orphans()
    try:
        daemon = start(message)
        _answer(node=message.name, event="started")
        reason = _wait_as_stub(message, daemon, wakeup, orphan_s)
        _answer(node=message.name, event="ending", reason=reason)
        # The controller ends first. Otherwise it would report the ends of processes as failures of
        # their jobs, but for the grid server this node is lost.
        daemon.end(STOP_TIMEOUT_S)
    finally:
        left = take_down(message.folder)
        process_table.reap_children()
    _answer(node=message.name, event="ended", left=left)
    return 1 if left else 0


def _wait_as_stub(
    message: NodeStartMessage, daemon: Daemon, wakeup: _SignalPipe, orphan_s: float
) -> str:
    """Wait until the node that runs in this placeholder job must end; return the reason as text.

    The node must end after a signal, when its controller has ended, or when its server could not be
    reached for ``orphan_s`` seconds.
    """
    heard = time.monotonic()
    while True:
        if select.select([wakeup.reading], [], [], _PROBE_S)[0]:
            return f"signal {wakeup.read()}"
        if not daemon.running_pid():
            return f"the controller has ended: {daemon.tail(5)}"
        if _accepts_connections(_server_address(message)):
            heard = time.monotonic()
        elif time.monotonic() - heard >= orphan_s:
            return f"the grid server could not be reached for {orphan_s:g} s"


def _server_address(message: NodeStartMessage) -> str:
    """Return the address of the server of a node; empty if the file with the address is missing."""
    if not message.address_file:
        return message.server
    try:
        return Path(message.address_file).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _accepts_connections(server: str) -> bool:
    """Return whether a server listens at an address."""
    try:
        address = parse_address(server)
        if isinstance(address, TcpAddress):
            with socket.create_connection((address.host, address.port), timeout=_PROBE_S):
                return True
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_PROBE_S)
            link.connect(str(address.path))
            return True
    except (ValueError, OSError):
        return False


class _SignalPipe:
    """Signals as bytes on a pipe, so that they can be waited for together with input."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        handler: Callable[[int, object], None] = lambda number, _: self._write(number)  # noqa: E731
        for number in signals:
            signal.signal(number, handler)

    def _write(self, number: int) -> None:
        with suppress(BlockingIOError):
            os.write(self._writing, bytes([number]))

    def read(self) -> int:
        """Return the number of a signal that has arrived, or 0."""
        with suppress(BlockingIOError):
            return os.read(self.reading, 1)[0]
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""One daemon of a cluster on this machine: start it, find it again, watch it, end it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.client.client_errors import ClientError
from pliant.client.cluster import process_table

#: How much of a log is read for its last lines.
_TAIL_BYTES = 8192


class DaemonDiedError(ClientError):
    """A daemon ended unexpectedly; the message holds the last lines of its log."""


@dataclass
class Daemon:
    """A server or a node controller of a cluster on this machine."""

    #: ``server`` or ``node-NAME``.
    name: str
    command: Sequence[str]
    #: The module that it runs, and the value of its ``--name`` (empty for the server).
    program: str
    node: str
    pid_file: str
    log: str
    #: The file in the state directory that it keeps locked. It holds the process id, too, because
    #: the pid file is lost with the run directory.
    lock: str
    #: Length of the log when this process started the daemon; earlier lines are of earlier daemons.
    log_start: int = 0
    #: The child process, if this process started the daemon.
    process: subprocess.Popen[bytes] | None = None

    def running_pid(self) -> int:
        """Return the daemon's process id; 0 if it does not run.

        A process id in the pid file or the lock counts only if the process is this daemon.
        """
        if self.process is not None and self.process.poll() is None:
            return self.process.pid
        # A daemon that has ended may have been started again by another `pliant up`.
        return self._pid_in(self.pid_file) or self._pid_in(self.lock)

    def _pid_in(self, path: str) -> int:
        try:
            with open(path, encoding="ascii") as file:
                pid, *start = (int(word) for word in file.read().split() if word.isdecimal())
        except (OSError, ValueError):
            return 0
        if not process_table.alive(pid) or (start and start != [process_table.start_time(pid)]):
            return 0
        if path == self.lock and not _is_in(self.lock, state_dir_of(pid)):
            return 0  # the file outlives its owner, and process ids are reused
        if path == self.pid_file and self._is_elsewhere(pid):
            return 0  # this run directory is a copy, inside a copy of the state directory
        named = not self.node or process_table.option(pid, "--name") == self.node
        return pid if named and process_table.program(pid) == self.program else 0

    def _is_elsewhere(self, pid: int) -> bool:
        """Return whether a process has other state and run directories than this daemon.

        False if its directories are unknown.
        """
        state, run = state_dir_of(pid), process_table.environment(pid).get("PLIANT_RUN_DIR", "")
        here = os.path.realpath(os.path.dirname(self.pid_file))
        return (
            bool(state)
            and not _is_in(self.lock, state)
            and bool(run)
            and os.path.realpath(run) != here
        )

    def start(self, env: Mapping[str, str]) -> None:
        """Start the daemon in its own session, with its output appended to its log."""
        os.makedirs(os.path.dirname(self.log), mode=0o700, exist_ok=True)
        with open(self.log, "ab") as log:
            self.log_start = log.tell()
            self.process = subprocess.Popen(
                self.command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._write_pid_file(self.process.pid)

    def restore_pid_file(self) -> None:
        """Write the pid file again if it was removed while the daemon ran."""
        if not os.path.exists(self.pid_file) and (pid := self.running_pid()):
            self._write_pid_file(pid)

    def _write_pid_file(self, pid: int) -> None:
        draft = f"{self.pid_file}.{os.getpid()}"
        with open(draft, "w", encoding="ascii") as file:
            file.write(f"{pid} {process_table.start_time(pid)}\n")
        os.replace(draft, self.pid_file)

    def check(self) -> None:
        """Check that the daemon still runs.

        Raises:
            DaemonDiedError: with its exit code and the last lines of its log, if this process has
                started it.
        """
        if self.process is None and not self.running_pid():
            raise DaemonDiedError(f"{self.name} ended: see {self.log}")
        if self.process is not None and self.process.poll() is not None:
            raise DaemonDiedError(
                f"{self.name} ended with {describe_code(self.process.returncode)}; "
                f"the end of {self.log}:\n{self.tail()}"
            )

    def stopped_pid(self) -> int:
        """Return the daemon's process id if it is stopped (SIGSTOP); else 0."""
        pid = self.running_pid()
        return pid if process_table.state(pid) == "T" else 0

    def end(self, grace_s: float) -> None:
        """End the daemon: SIGTERM, and after ``grace_s`` seconds SIGKILL."""
        pid = self.running_pid()
        if pid:
            process_table.terminate([pid], grace_s)
        if self.process is not None:
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                pass  # SIGKILL did not end it: the caller's final check reports it
        self.forget()

    def detach(self) -> None:
        """Give up the daemon as a child process; later commands find it through its pid file."""
        if self.process is not None:
            self.process.returncode = 0  # so that `subprocess` neither waits for it nor warns
            self.process = None

    def forget(self) -> None:
        """Remove the pid file, so that later commands do not look for the daemon."""
        try:
            os.unlink(self.pid_file)
        except (FileNotFoundError, NotADirectoryError):
            pass  # it removed its own

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of the daemon's log.

        If this process started the daemon, lines from before the start are left out.
        """
        return tail(self.log, lines, self.log_start)


def tail(path: str, lines: int = 15, start: int = 0) -> str:
    """Return the last lines of a file from byte ``start`` on, or why it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"({error.strerror})"
    return "\n".join(text.splitlines()[-lines:]) or "(empty)"


def state_dir_of(pid: int) -> str:
    """Return the state directory in the environment of a process; empty if there is none."""
    return process_table.environment(pid).get("PLIANT_STATE_DIR", "")


def _is_in(path: str, folder: str) -> bool:
    """Return whether a path is in a folder, after links are resolved."""
    return bool(folder) and os.path.realpath(path).startswith(f"{os.path.realpath(folder)}/")


def describe_code(code: int) -> str:
    """Return how a process ended, as text: ``exit code 1`` or ``signal 9``."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def wait_until_gone(daemons: Sequence[Daemon], timeout_s: float) -> bool:
    """Wait until daemons have ended; return False if some have not within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while any(daemon.running_pid() for daemon in daemons):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True

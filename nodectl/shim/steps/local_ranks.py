"""The ranks of a step on this node: started, served by PMI-1, and ended without leftovers.

A command for the launcher of another MPI library is a step with one rank that does not use PMI, and
that may leave processes behind.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from pliant.nodectl.host import procfs, shared_memory
from pliant.nodectl.shim import rank_termination
from pliant.nodectl.shim import ranks as rank_processes
from pliant.nodectl.shim.event_loop import EventLoop, LineSplitter, SocketChannel
from pliant.nodectl.shim.pmi_rank_connections import PmiService, abort_reason
from pliant.nodectl.shim.rank_fork_exec import LaunchSpec, read_failures, start
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.world_folder import MALLEABLE_STEP, NOT_USABLE, StartRequest

#: The type of a command that runs on all processors of this node, in a `StartRequest`.
COMMAND = "command"

#: Seconds between two looks for processes that the ranks of a step have left behind.
_LEFTOVERS_INTERVAL_S = 0.05


class StepEvents(Protocol):
    """Receives events of a step's ranks on one node; a step is a program that a script starts."""

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        """Handle a barrier that all local ranks have entered.

        Args:
            sequence: the number of the barrier.
            pairs: the key-value pairs that these ranks have put.
        """

    def on_failure(self, code: int, number: int, reason: str) -> None:
        """Handle the failure of a rank.

        Args:
            code: its exit code.
            number: the number of the signal that ended it; 0 for none.
            reason: why it failed, for the user.
        """

    def on_control(self, message: Mapping[str, Any]) -> None:
        """Handle a message about a resize that a rank has sent on its control socket."""

    def on_exit(self, rank: int) -> None:
        """Handle the end of a rank's process; called only in steps that can be resized."""

    def on_ranks_ended(self) -> None:
        """Handle the end of all local ranks; no process is left."""


class LocalRanks:
    """The ranks of one step (a program that a script starts) on this node."""

    def __init__(
        self,
        loop: EventLoop,
        request: StartRequest,
        stdio: tuple[int, int, int],
        events: StepEvents,
    ) -> None:
        """Start the ranks.

        Args:
            loop: the event loop of the shim.
            request: the local ranks of the step, and its environment with ``PLIANT_STEP``.
            stdio: descriptors of the input of rank 0 (-1 for none), and of the output and error of
                all ranks.
            events: receives events of the ranks, but none before this function has returned.

        Raises:
            OSError: there are no more descriptors.
        """
        self._loop, self._request, self._events = loop, request, events
        self._failures, self._failure_pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_ending = self._is_gone = False
        names = ("PLIANT_STEP", "PLIANT_RESIZE")
        variables = {name: request.environment.get(name, "") for name in names}
        self._marks = {f"{name}={value}".encode() for name, value in variables.items() if value}
        self._ranks: dict[int, Rank] = {}
        self._pmi = PmiService(request, self._ranks, self)
        for place, (rank, processor) in enumerate(request.ranks):
            self._ranks[rank] = self._start(place, rank, processor, stdio)
        if request.is_mpi:
            self._pmi.detect_singletons(loop, self._on_foreign)
        loop.after(0, self._report_if_ended)  # if no rank could be forked

    def reap(self, pid: int, status: int) -> bool:
        """Handle the end of a process; return whether the process was one of these ranks."""
        for rank in self._ranks.values():
            if rank.runs and rank.pid == pid:
                self._on_exit(rank, status)
                return True
        return False

    def signal(self, number: int) -> None:
        """Send a signal to the ranks and their process groups."""
        for rank in self._ranks.values():
            if rank.runs and not rank_termination.signal_group(rank.pid, number):
                rank_termination.send_signal(rank.pid, number)

    def end(self) -> None:
        """Send SIGTERM to the ranks, and kill them after the grace time."""
        if self._is_ending:
            return
        self._is_ending = True
        for rank in self._ranks.values():
            if rank.runs:
                rank_termination.ask_to_end(rank)
                kill = partial(self._kill, rank)
                rank.kill_at = self._loop.after(self._request.grace_s, kill)

    def release(self, pairs: Mapping[str, str]) -> None:
        """Release the ranks from a barrier.

        Args:
            pairs: the key-value pairs that the ranks of all nodes have put.
        """
        self._pmi.release(pairs)

    def control(self, rank: int, message: Mapping[str, Any]) -> None:
        """Send a message about a resize to a rank; do nothing if the rank is not on this node."""
        known = self._ranks.get(rank)
        if known is not None and known.control is not None:
            known.control.send(json.dumps(message).encode() + b"\n")

    # ------------------------------------------------------------------ ranks

    def _start(self, place: int, rank: int, processor: int, stdio: tuple[int, int, int]) -> Rank:
        request = self._request
        pairs: list[tuple[socket.socket, socket.socket]] = []
        try:
            count = 2 if request.type == MALLEABLE_STEP else 1
            pairs.extend(socket.socketpair() for _ in range(count))
        except OSError as error:
            _close(pairs)
            return self._not_started(rank, processor, f"cannot start: {error.strerror}")
        handles = [theirs.fileno() for _, theirs in pairs]
        devices = {kind: every[place] for kind, every in request.devices.items()}
        variables = {
            **request.environment,
            "PLIANT_PROCESSOR": str(processor),
            **rank_processes.device_variables(devices),
        }
        if request.is_mpi:
            variables |= rank_processes.mpi_variables(request, rank, place, handles[0])
        if len(handles) > 1:
            variables["PLIANT_CONTROL_FD"] = str(handles[1])
        cpus = request.cpus[place] if request.cpus else ()
        spec = LaunchSpec(
            request,
            variables,
            tuple(handles) if request.is_mpi else (),
            self._failure_pipe,
            () if request.shares_cpus else cpus,
            cpus if request.shares_cpus else (),
            stdio=(stdio[0] if rank == 0 else -1, *stdio[1:]),
        )
        try:
            started = Rank(rank, processor, start(spec))
        except OSError as error:
            _close(pairs)
            return self._not_started(rank, processor, f"cannot start: fork: {error.strerror}")
        calls = partial(self._pmi.handle, rank), partial(self._on_control, started)
        channels = [
            SocketChannel(self._loop, ours, LineSplitter(call))
            for (ours, _), call in zip(pairs, calls, strict=False)
        ]
        started.pmi, started.control = (*channels, None)[:2]
        for _, theirs in pairs:
            theirs.close()
        return started

    def _not_started(self, rank: int, processor: int, reason: str) -> Rank:
        self._loop.after(0, partial(self._fail, NOT_USABLE, 0, reason))
        return Rank(rank, processor, 0, status=NOT_USABLE << 8)

    # ------------------------------------------------------------------ PMI

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        """Report that all local ranks have entered a barrier; see `StepEvents.on_barrier`."""
        self._events.on_barrier(sequence, pairs)

    def on_finalize(self) -> None:
        """Do nothing: the shared memory of a step is found by its name when the step has ended."""

    def on_abort(self, rank: int, code: int, message: str) -> None:
        """End the ranks of the step, because one of them has called MPI_Abort."""
        control = self._ranks[rank].control
        if control is not None:
            control.drain()  # the rank may have sent the reason there
        message = self._ranks[rank].failure_text or message
        self._fail(code or 1, 0, abort_reason(rank, code, message))

    # ------------------------------------------------------------------ control sockets

    def _on_control(self, rank: Rank, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # a program that writes there harms only itself
        if not isinstance(message, dict):
            return
        if message.get("op") == "failed":
            rank.failure_text = rank_processes.one_line(message.get("text"))
        else:
            self._events.on_control(message)

    # ------------------------------------------------------------------ ends

    def _on_foreign(self, reason: str) -> None:
        self._fail(1, 0, reason)

    def _fail(self, code: int, number: int, reason: str) -> None:
        self._events.on_failure(code, number, reason)
        self.end()

    def _kill(self, rank: Rank) -> None:
        if rank.runs:
            rank_termination.kill(rank)

    def _on_exit(self, rank: Rank, status: int) -> None:
        for channel in (rank.pmi, rank.control):
            if channel is not None:
                channel.drain()  # its last message may be an abort, or the outcome of a resize
        verdict = self._pmi.verdict()
        rank.status = status
        rank.close()
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = os.WEXITSTATUS(status) if not number else 0
        reason = rank.failure_text if status else ""
        for pid, failed in read_failures(self._failures).items():
            if pid == rank.pid:
                code, reason = failed
        if not status and verdict is not None:
            code, reason = verdict
        if (code or number) and not self._is_ending:
            where = f"rank {rank.rank} of {self._request.size}"
            how = f"was ended by signal {number}" if number else f"exited with code {code}"
            # Launchers report themselves that their daemons have failed.
            text = f"{where} {how}" if self._request.is_mpi else ""
            self._fail(code, number, reason or text)
        if self._request.type == MALLEABLE_STEP:
            self._events.on_exit(rank.rank)
        self._report_if_ended()

    def _report_if_ended(self) -> None:
        """Report that the step has no process left on this node; kill leftovers of its ranks first.

        Do nothing while a rank runs.
        """
        if self._is_gone or any(rank.runs for rank in self._ranks.values()):
            return
        self._pmi.stop_detection()
        if left := self._leftovers():
            rank_termination.kill_all(rank_termination.stop_all(lambda: left))
            self._loop.after(_LEFTOVERS_INTERVAL_S, self._report_if_ended)
            return
        self._is_gone = True
        os.close(self._failures)
        os.close(self._failure_pipe)
        request = self._request
        first = request.ranks[0][0]
        shared_memory.unlink(shared_memory.world_segments(request.world, request.mapping, first))
        self._events.on_ranks_ended()

    def _leftovers(self) -> list[int]:
        """Return the running processes of the step that its ended ranks have left behind.

        Empty for a command that starts a daemon of another MPI library: the daemon may stay.
        """
        if not self._request.is_mpi:
            return []
        return [
            pid
            for pid in procfs.descendants(os.getpid())
            if self._marks <= set(procfs.environment(pid))
            and (stat := procfs.read_stat(pid)) is not None
            and stat.state not in procfs.ENDED_STATES
        ]


def _close(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    for pair in pairs:
        for each in pair:
            each.close()

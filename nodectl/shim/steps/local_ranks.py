"""The ranks of a step on this node: started, served by PMI-1, and ended without leftovers.

A command for the launcher of another MPI library is a step with one rank that does not use PMI, and
that may leave processes behind.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from pliant.nodectl.host import procfs, shared_memory
from pliant.nodectl.shim import rank_termination
from pliant.nodectl.shim import ranks as rank_processes
from pliant.nodectl.shim.event_loop import EventLoop, LineSplitter, SocketChannel
from pliant.nodectl.shim.pmi_service import PmiService, abort_reason
from pliant.nodectl.shim.rank_fork_exec import LaunchSpec, read_failures, start
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.world_folder import NOT_USABLE, StartRequest

#: The type of a command that runs on all processors of this node, in a `StartRequest`.
COMMAND = "command"

#: Seconds between two looks for processes that the ranks of a step have left behind.
_LEFTOVERS_INTERVAL_S = 0.05


class StepEvents(Protocol):
    """Receives the events of a step's ranks on one node."""

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        """Handle that all local ranks have entered a barrier.

        Args:
            sequence: the number of the barrier.
            pairs: the key-value pairs that these ranks have put.
        """

    def on_failure(self, code: int, number: int, reason: str) -> None:
        """Handle that a rank has failed, with its exit code, signal number and reason."""

    def on_gone(self) -> None:
        """Handle that all local ranks have ended without leftovers."""


class LocalRanks:
    """The ranks of one step on this node."""

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
        self._mark = f"PLIANT_STEP={request.environment.get('PLIANT_STEP', '')}".encode()
        self._ranks: dict[int, Rank] = {}
        self._pmi = PmiService(request, self._ranks, self)
        for place, (rank, processor) in enumerate(request.ranks):
            self._ranks[rank] = self._start(place, rank, processor, stdio)
        if request.is_mpi:
            self._pmi.detect_singletons(loop, self._on_foreign)
        loop.after(0, self._check)  # if no rank could be forked

    def reap(self, pid: int, status: int) -> bool:
        """Handle that a process has ended; return whether it was one of these ranks."""
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
        """Release the ranks from a barrier, given the pairs that all nodes have put."""
        self._pmi.release(pairs)

    # ------------------------------------------------------------------ ranks

    def _start(self, place: int, rank: int, processor: int, stdio: tuple[int, int, int]) -> Rank:
        request = self._request
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            return self._not_started(rank, processor, f"cannot start: {error.strerror}")
        handle = theirs.fileno()
        devices = {kind: every[place] for kind, every in request.devices.items()}
        variables = {
            **request.environment,
            "PLIANT_PROCESSOR": str(processor),
            **rank_processes.device_variables(devices),
        }
        if request.is_mpi:
            variables |= rank_processes.mpi_variables(request, rank, place, handle)
        cpus = request.cpus[place] if request.cpus else ()
        spec = LaunchSpec(
            request,
            variables,
            (handle,) if request.is_mpi else (),
            self._failure_pipe,
            () if request.shares_cpus else cpus,
            cpus if request.shares_cpus else (),
            stdio=(stdio[0] if rank == 0 else -1, *stdio[1:]),
        )
        try:
            started = Rank(rank, processor, start(spec))
        except OSError as error:
            ours.close()
            reason = f"cannot start: fork: {error.strerror}"
            started = self._not_started(rank, processor, reason)
        else:
            splitter = LineSplitter(partial(self._pmi.handle, rank))
            started.pmi = SocketChannel(self._loop, ours, splitter)
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
        """Do nothing: shared memory of steps is found by its name."""

    def on_abort(self, rank: int, code: int, message: str) -> None:
        """End the ranks of the step, because one of them has called MPI_Abort."""
        self._fail(code or 1, 0, abort_reason(rank, code, message))

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
        if rank.pmi is not None:
            rank.pmi.drain()  # its last message may be an abort
        verdict = self._pmi.verdict()
        rank.status = status
        rank.close()
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = os.WEXITSTATUS(status) if not number else 0
        reason = ""
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
        self._check()

    def _check(self) -> None:
        """Report that the step has ended here if no process is left."""
        if self._is_gone or any(rank.runs for rank in self._ranks.values()):
            return
        self._pmi.stop_detection()
        if left := self._leftovers():
            rank_termination.kill_all(rank_termination.stop_all(lambda: left))
            self._loop.after(_LEFTOVERS_INTERVAL_S, self._check)
            return
        self._is_gone = True
        os.close(self._failures)
        os.close(self._failure_pipe)
        request = self._request
        first = request.ranks[0][0]
        shared_memory.unlink(shared_memory.world_segments(request.world, request.mapping, first))
        self._events.on_gone()

    def _leftovers(self) -> list[int]:
        """Return the running processes that the ranks have left behind; empty for a command."""
        if not self._request.is_mpi:
            return []
        return [
            pid
            for pid in procfs.descendants(os.getpid())
            if self._mark in procfs.environment(pid)
            and (stat := procfs.read_stat(pid)) is not None
            and stat.state not in procfs.ENDED_STATES
        ]

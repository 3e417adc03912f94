"""The shim of one world on one node: starts its ranks, serves them, and records their exits.

A shim is a fork of the launcher and outlives both launcher and controller. It sleeps in one
selector. It saves exits in the spool first, and then sends them to the controller if one is
connected. A world has ended when all its ranks have ended and no process that a rank started is
left. `run_successive_worlds` then waits for another world.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pliant.faults import failpoint, message
from pliant.nodectl.host import procfs, shared_memory
from pliant.nodectl.shim import rank_termination
from pliant.nodectl.shim import ranks as rank_processes
from pliant.nodectl.shim.binding import Binding
from pliant.nodectl.shim.event_loop import (
    EventLoop,
    LineSplitter,
    ScheduledCall,
    SocketChannel,
)
from pliant.nodectl.shim.lease_enforcement import Lease
from pliant.nodectl.shim.load_record_file import LoadRecorder
from pliant.nodectl.shim.non_pmi_mpi import ForeignMpiError, use_own_launcher
from pliant.nodectl.shim.pmi_rank_connections import PmiService, abort_reason
from pliant.nodectl.shim.rank_exits import ExitCallbacks, ExitTracker
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.shim.staging.staged_folder import (
    StagedFolder,
    StagedFolderError,
    use_staged_folder,
)
from pliant.nodectl.shim.steps.manager import StepManager
from pliant.nodectl.world_folder import SpooledExit, StartRequest, WorldFolder

_MIN_RETRY_S, _MAX_RETRY_S = 0.05, 2.0

#: Seconds that a shim waits, at the end of a world, for a controller that does not read.
_FLUSH_TIMEOUT_S = 1.0


class Shim:
    """Runs one world (set of ranks) on this node: starts, serves and ends its ranks."""

    def __init__(
        self,
        spool: WorldFolder,
        request: StartRequest,
        connect: Callable[[], socket.socket],
        identity: procfs.ProcessIdentity,
        *,
        must_confirm: bool = False,
    ) -> None:
        """Prepare to start and watch a world (set of ranks).

        Args:
            spool: the folder of the world.
            request: the order to start the world.
            connect: returns a connection to the controller.
            identity: the identity of this process.
            must_confirm: whether the controller saves exits, because ``spool`` does not. Then the
                shim ends only when the controller has confirmed that it saved all of them.
        """
        self._spool = spool
        self._refusal = ""
        self._staged: StagedFolder | None = None
        try:
            request = use_own_launcher(use_staged_folder(request))
            if request.stage:
                self._staged = StagedFolder(request)
        except (ForeignMpiError, StagedFolderError) as error:
            self._refusal = str(error)
        except OSError as error:
            self._refusal = f"the folder of its staged files: {error}"
        self._request = request
        self._connect = connect
        self._unconfirmed = {rank for rank, _ in request.ranks} if must_confirm else set[int]()
        self._binding = Binding(request, identity)
        self._loop = EventLoop()
        self._recorder = LoadRecorder(self._loop, request)
        self._lease = Lease(self._loop, request, self._on_cut_off)
        self._ranks: dict[int, Rank] = {}
        self._steps: StepManager | None = None
        calls = ExitCallbacks(
            self._remove_shared,
            self._send_exits,
            self._stop_if_confirmed,
            self._add_steps,
            self._begin_output_transfer,
        )
        self._tracker = ExitTracker(self._loop, spool, request, calls)
        self._segments: set[shared_memory.Segment] = set()
        self._not_returned = ""  # why the outputs of staged files stay here
        self._barrier: dict[str, Any] | None = None
        self._controller: SocketChannel | None = None
        self._retry_s = _MIN_RETRY_S
        self._retry: ScheduledCall | None = None
        self._pmi = PmiService(request, self._ranks, self)

    def run(self) -> None:
        """Start the ranks, and serve them until they and all processes they started have ended."""
        self._loop.on_signals(
            {
                signal.SIGCHLD: self._reap,
                signal.SIGUSR1: self._attach,
                signal.SIGTERM: self._terminate,
                signal.SIGINT: lambda: None,
                signal.SIGHUP: lambda: None,
            }
        )
        failpoint("shim.claimed")
        if late := self._lease.expired():
            self._ranks |= rank_processes.ranks_not_started(self._request, late, cut_off=True)
        elif self._refusal:
            self._ranks |= rank_processes.ranks_not_started(self._request, self._refusal)
        else:
            if self._request.type == "script":
                self._steps = StepManager(self._loop, self._spool, self._request, self._relay)
                self._request.environment |= self._steps.launch_variables()
            lines = (self._pmi.handle, self._on_control)
            self._ranks |= rank_processes.start_ranks(
                self._loop, self._spool, self._request, self._tracker.failure_pipe, lines
            )
            self._pmi.detect_singletons(self._loop, self._end_singletons)
            self._recorder.start()
        self._lease.watch()
        self._tracker.watch(self._ranks)
        self._end_held()
        failpoint("shim.started")
        self._attach()
        self._tracker.update()
        self._loop.run()
        self._collect()  # what has ended since, because an idle shim must have no zombies
        self._close()

    # ------------------------------------------------------------------ ranks

    def on_abort(self, rank: int, code: int, message: str) -> None:
        """End the ranks of this node, because one of them has called MPI_Abort.

        All ranks get the exit code of that call, even if another rank ends first.
        """
        for other in self._ranks.values():
            if other.live and not other.end_requested:
                other.abort_code = code or 1
        asks = self._ranks[rank]
        if asks.control is not None:
            asks.control.drain()  # the rank may have sent the reason there
        message = asks.failure_text or message
        self._kill((), self._request.grace_s, abort_reason(rank, code, message))

    def on_finalize(self) -> None:
        """Record which shared memory the ranks have mapped, before MPI_Finalize unmaps it."""
        self._scan_segments()

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        """Report to the controller that all local ranks have entered a barrier.

        If all ranks of the world are on this node, release them instead.

        Args:
            sequence: the number of the barrier.
            pairs: the key-value pairs that the local ranks have put.
        """
        self._scan_segments()
        failpoint("shim.barrier")
        if self._request.spans_nodes:
            # The name of the operation stays: shims outlive controllers of other versions.
            self._barrier = {"op": "fence", "sequence": sequence, "pairs": pairs}
            self._send(self._barrier)
        else:
            self._pmi.release({})

    def _on_control(self, rank: int, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # a program that writes there harms only itself
        if isinstance(message, dict) and message.get("op") == "failed":
            self._ranks[rank].failure_text = rank_processes.one_line(message.get("text"))
        if not isinstance(message, dict) or message.get("op") != "ready":
            return
        self._ranks[rank].ready = True
        if self._ready():
            self._scan_segments()
            failpoint("shim.ready")
            self._send({"op": "ready"})

    def _ready(self) -> bool:
        """Return whether the local ranks can begin.

        Ranks that join a running job can begin when all of them here are ready, others at once.
        """
        return self._request.resize == 0 or all(rank.ready for rank in self._ranks.values())

    def _scan_segments(self) -> None:
        """Record which shared memory the ranks have mapped, to remove it if they are killed."""
        for rank in self._ranks.values():
            if rank.runs:
                for pid in (rank.pid, *procfs.descendants(rank.pid)):
                    self._segments |= shared_memory.mapped_segments(pid)

    # ------------------------------------------------------------------ ends

    def _reap(self) -> None:
        self._collect()
        self._tracker.update()

    def _collect(self) -> None:
        self._recorder.measure()
        by_pid = {rank.pid: rank for rank in self._ranks.values() if rank.runs}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in by_pid:
                self._note_end(by_pid[pid], status)
            elif self._staged is not None and pid == self._staged.returning:
                self._not_returned = self._staged.end_return(status)
            elif self._steps is not None:
                self._steps.reap(pid, status)

    def _note_end(self, rank: Rank, status: int) -> None:
        for channel in (rank.pmi, rank.control):
            if channel is not None:
                channel.drain()  # its last messages, such as the reason for an abort
        if status == 0 and not rank.end_requested:
            rank.verdict = self._pmi.verdict()
        rank.status = status
        rank.close()
        self._tracker.add_ended(rank)
        self._end_held()

    def _end_held(self) -> None:
        """Free the processors that the job's script reserved on this node, now that it has ended.

        A script has one process, on its first processor. Do nothing on the job's other nodes.
        """
        if any(not rank.held for rank in self._ranks.values()):
            self._release_held()

    def _release_held(self, status: int = 0) -> bool:
        """Free the processors that a script reserves on this node, if the script does not run here.

        Args:
            status: the wait status to record for the ranks that stand for these processors.

        Returns:
            Whether any processor was freed.
        """
        held = [rank for rank in self._ranks.values() if rank.live and rank.held]
        if not held or any(rank.runs for rank in self._ranks.values()):
            return False
        for rank in held:
            rank.status = status
            self._tracker.add_ended(rank)
        return True

    def _add_steps(self, end: SpooledExit) -> None:
        """Store the accounting records of the script's steps in ``end``, the exit of the script.

        Steps are programs that the script has started. The script is rank 0; for other ranks, do
        nothing.
        """
        if self._steps is not None and end.rank == 0:
            end.steps = self._steps.records()

    def _begin_output_transfer(self, last: list[SpooledExit]) -> bool:
        """Start to send the job's output files to the server, if no other shim here needs them.

        Only jobs with staged files have such a transfer. Their shims on a host share a folder.
        When the transfer has ended, this function is called once more, and adds the error of a
        failed transfer to the first exit.

        Args:
            last: the exits of the last ranks, which are reported after the transfer.

        Returns:
            Whether a transfer is in progress.
        """
        if self._staged is None or self._staged.begin_return():
            return self._staged is not None
        self._not_returned = self._not_returned or self._staged.problem
        if self._not_returned:
            # A job must not count as completed if its results are missing.
            last[0].reason = "; ".join(filter(None, (last[0].reason, self._not_returned)))
            last[0].code = last[0].code or (0 if last[0].signal else 1)
        return False

    def _end_singletons(self, reason: str) -> None:
        """End all ranks, because each of them runs alone, as an MPI program of one rank.

        The job fails even if they return 0.
        """
        self._pmi.stop_detection()
        for rank in self._ranks.values():
            if rank.runs and not rank.end_requested:
                rank.verdict = 1, reason
        self._kill((), self._request.grace_s, reason)

    def _kill(self, processors: Iterable[int], grace_s: float, reason: str = "") -> None:
        """End the ranks on ``processors``, or all ranks if none are given.

        They get SIGTERM at once, and SIGKILL after ``grace_s`` seconds.
        """
        wanted = set(processors)
        self._scan_segments()
        for rank in self._ranks.values():
            if not rank.live or (wanted and rank.processor not in wanted):
                continue
            rank.end_requested = True
            rank.end_reason = rank.end_reason or reason
            if rank.held:
                continue
            if grace_s <= 0:
                rank_termination.kill(rank)
                continue
            rank_termination.ask_to_end(rank)
            due = time.monotonic() + grace_s
            if rank.kill_at is None or due < rank.kill_at.due:
                if rank.kill_at is not None:
                    rank.kill_at.cancel()
                rank.kill_at = self._loop.after(grace_s, partial(self._kill_now, rank))
        # Held processors end with success only if the server has ordered it.
        if self._release_held(signal.SIGTERM if reason else 0):
            self._tracker.update()

    def _terminate(self) -> None:
        self._kill((), self._request.grace_s, rank_processes.TERMINATED)
        if self._staged is not None:
            self._staged.stop()

    def _signal(self, number: int) -> None:
        """Send a signal to each rank and its process group."""
        for rank in self._ranks.values():
            if rank.runs and not rank_termination.signal_group(rank.pid, number):
                rank_termination.send_signal(rank.pid, number)

    def _on_cut_off(self, reason: str) -> None:
        for rank in self._ranks.values():
            rank.cut_off |= rank.live and not rank.end_requested
        self._kill((), self._request.grace_s, reason)

    def _kill_now(self, rank: Rank) -> None:
        if rank.runs:
            self._scan_segments()
            rank_termination.kill(rank)

    # ------------------------------------------------------------------ controller

    def _attach(self) -> None:
        """Connect to the controller, and send it the state of the ranks; retry later on failure."""
        if self._controller is not None and self._controller.is_open:
            return
        if self._retry is not None:
            self._retry.cancel()
        try:
            sock = self._connect()
        except OSError:
            self._retry = self._loop.after(self._retry_s, self._attach)
            self._retry_s = min(2 * self._retry_s, _MAX_RETRY_S)
            return
        self._retry_s = _MIN_RETRY_S
        self._controller = SocketChannel(
            self._loop, sock, LineSplitter(self._on_order), self._on_lost
        )
        self._send(
            {
                "op": "hello",
                "world": self._request.world,
                "pid": os.getpid(),
                "ready": self._ready(),
                "fence": self._barrier,
                "exits": [end.to_record() for end in self._tracker.exits.values()],
            }
        )

    def _on_lost(self) -> None:
        self._retry = self._loop.after(self._retry_s, self._attach)

    def _send(self, message: dict[str, Any]) -> None:
        if self._controller is not None:
            self._controller.send(json.dumps(message).encode() + b"\n")

    def _send_exits(self, exits: list[SpooledExit]) -> None:
        self._binding.release(self._ranks.values())
        self._send({"op": "exits", "exits": [end.to_record() for end in exits]})

    def _on_order(self, line: bytes) -> None:
        order = json.loads(line)
        match order["op"]:
            case "fence_done":
                if self._barrier is not None and self._barrier["sequence"] == order["sequence"]:
                    self._barrier = None
                    self._pmi.release(order["pairs"])
            case "control":
                for _ in message("shim.control"):
                    self._control(order["ranks"], order["message"])
            # The second order says that the controller does not know this world, so that nobody
            # waits for its exits.
            case "exits_saved" | "forget":
                self._confirm(order.get("ranks", list(self._unconfirmed)))
            case "access":
                self._spool.update_access(order["address"], order["roots"].encode())
            case "contact":
                self._lease.renew(order["at"])
            case "relay":
                self._receive(order["from"], order["packet"])
            case "cpus":
                self._binding.share(order["cpus"], self._ranks.values())
            case "signal":
                self._signal(order["number"])
            case "kill":
                for _ in message("shim.kill"):
                    self._kill(order["processors"], order["grace_s"], order.get("reason", ""))

    def _relay(self, rank: int, packet: dict[str, Any]) -> None:
        self._send({"op": "relay", "to": rank, "packet": json.dumps(packet)})

    def _receive(self, rank: int, packet: str) -> None:
        if self._steps is not None:
            self._steps.receive(rank, json.loads(packet))

    def _confirm(self, ranks: Iterable[int]) -> None:
        """Record that the controller has saved the exits of ``ranks``."""
        self._unconfirmed -= set(ranks)
        self._tracker.call_if_done()

    def _stop_if_confirmed(self) -> None:
        if not self._unconfirmed:
            self._loop.stop()

    def _control(self, ranks: list[int], message: str) -> None:
        for number in ranks or list(self._ranks):
            rank = self._ranks.get(number)
            if rank is not None and rank.control is not None:
                rank.control.send(message.encode() + b"\n")

    def _remove_shared(self) -> None:
        """Remove the ranks' shared memory and secrets, and stop recording the load.

        Called when no rank runs any more.
        """
        self._recorder.close()
        request = self._request
        if request.is_mpi:
            rank = request.ranks[0][0]
            named = shared_memory.world_segments(request.world, request.mapping, rank)
            shared_memory.unlink(self._segments | named)
        self._spool.remove_secrets()

    def _close(self) -> None:
        if self._controller is not None:
            self._controller.finish(_FLUSH_TIMEOUT_S)
        if self._steps is not None:
            self._steps.close()
        if self._staged is not None:
            self._staged.close()
        self._loop.close()
        self._tracker.close()

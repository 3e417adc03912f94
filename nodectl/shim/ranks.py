"""The ranks of a world: what is known of each, their start, and the report of their exit.

`rank_termination` ends them and the processes that they leave behind.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pliant.core.support.input_limits import MAX_TEXT
from pliant.nodectl.host.log_to_stderr import write_line
from pliant.nodectl.host.oom import MemoryKills
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.shim.event_loop import EventLoop, LineSplitter, ScheduledCall, SocketChannel
from pliant.nodectl.shim.rank_fork_exec import LaunchSpec, start, truncate_outputs
from pliant.nodectl.world_folder import NOT_USABLE, SpooledExit, StartRequest, WorldFolder
from pliant.protos.interactive.session_address import VARIABLE

OnLine = Callable[[int, bytes], None]
#: The reason of exits after the shim got SIGTERM.
TERMINATED = "its shim was told to end, as by `pliant down` where no server could cancel the job"


@dataclass(slots=True)
class Rank:
    """A rank on this node, from the fork to the end of its process.

    If the job is a script, only rank 0 has a process, the script. Each other rank then only
    reserves a processor, on which the script may start programs: see ``held``.
    """

    rank: int
    processor: int
    pid: int
    pmi: SocketChannel | None = None
    control: SocketChannel | None = None
    ready: bool = False
    status: int | None = None  # of waitpid, once it has ended
    end_requested: bool = False  # by an order
    abort_code: int | None = None  # of the MPI_Abort, its own or another rank's, that ended it
    end_reason: str = ""  # why it is being ended, for the user
    failure_text: str = ""  # the rank's own message on why it will abort
    cut_off: bool = False  # it is being ended because the node lost contact with the server
    kill_at: ScheduledCall | None = None
    #: It stands for a processor on which the script of the job may start processes.
    held: bool = False
    #: Exit code and reason that count whatever its process returns.
    verdict: tuple[int, str] | None = None

    @property
    def live(self) -> bool:
        """Return whether the rank has not ended: its process runs, or it reserves a processor."""
        return self.status is None

    @property
    def runs(self) -> bool:
        """Return whether the rank has a running process; False if it only reserves a processor."""
        return self.live and not self.held

    def close(self) -> None:
        """Close the sockets to the rank, and cancel its timer."""
        for channel in (self.pmi, self.control):
            if channel is not None:
                channel.close()
        if self.kill_at is not None:
            self.kill_at.cancel()


def one_line(said: object) -> str:
    """Return a text as one printable line of limited length; empty if ``said`` is not a string."""
    text = "".join(c if c.isprintable() else " " for c in said) if isinstance(said, str) else ""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def start_ranks(
    loop: EventLoop,
    spool: WorldFolder,
    request: StartRequest,
    failures: int,
    lines: tuple[OnLine, OnLine],
) -> dict[int, Rank]:
    """Start all ranks of a request on this node.

    Args:
        loop: serves the sockets of the ranks.
        spool: the folder in which the processes of the ranks are recorded.
        request: the ranks and their program.
        failures: descriptor of the pipe into which a process writes why it cannot execute the
            program.
        lines: functions for each line on the PMI socket of a rank, and on its control socket, which
            carries messages about resizes.

    Returns:
        The ranks by number; one that could not be forked has ended.
    """
    truncate_outputs(request)
    # The program does not get the variable, because a job that it submits has another session.
    session = request.environment.pop(VARIABLE, "")
    ranks = {}
    for local, (rank, processor) in enumerate(request.ranks):
        if request.is_held(rank):
            ranks[rank] = Rank(rank, processor, 0, held=True)
            continue
        variables = {**request.environment, "PLIANT_PROCESSOR": str(processor)}
        variables |= device_variables(_devices(request, local))
        ours: list[socket.socket] = []
        theirs: list[socket.socket] = []
        if request.is_mpi:
            for _ in range(2):
                here, there = socket.socketpair()
                ours.append(here)
                theirs.append(there)
            variables |= mpi_variables(request, rank, local, theirs[0].fileno())
            variables["PLIANT_CONTROL_FD"] = str(theirs[1].fileno())
        keep = tuple(sock.fileno() for sock in theirs)
        # Ranks that share their CPUs inherit them: a rank that binds itself could do so after an
        # order with more CPUs, and would undo that.
        cpus = _cpus(request, local) if not request.shares_cpus else ()
        inherited = request.cpus[local] if request.shares_cpus else ()
        started = ranks[rank] = _start(
            LaunchSpec(
                request,
                variables,
                keep,
                failures,
                cpus,
                inherited,
                rank=rank,
                session=session if rank == 0 and not request.resize else "",
            ),
            rank,
            processor,
        )
        for sock in theirs:
            sock.close()
        if request.is_mpi:
            on_pmi, on_control = lines
            started.pmi = SocketChannel(loop, ours[0], LineSplitter(_for_rank(rank, on_pmi)))
            started.control = SocketChannel(
                loop, ours[1], LineSplitter(_for_rank(rank, on_control))
            )
    found = [(rank.rank, ProcessIdentity.of(rank.pid)) for rank in ranks.values() if rank.pid]
    try:
        spool.save_ranks((rank, who) for rank, who in found if who is not None)
    except OSError as error:
        # Without this record, the ranks are found by their environment.
        write_line(f"{request.world}: cannot note its ranks: {error}")
    return ranks


def _cpus(request: StartRequest, local: int) -> Sequence[int]:
    """Return the CPUs of one rank; for a script, those of all processors that it has on this node.

    Args:
        request: the request to start the ranks.
        local: the index of the rank among the ranks of this node.
    """
    if request.type == "script":
        return sorted(set(chain.from_iterable(request.cpus)))
    return request.cpus[local] if request.cpus else ()


def _devices(request: StartRequest, local: int) -> dict[str, list[int]]:
    """Return, by kind, the devices of one rank; for a script, all that its job has on this node.

    Args:
        request: the request to start the ranks.
        local: the index of the rank among the ranks of this node.
    """
    if request.type == "script":
        return {kind: [*chain.from_iterable(every)] for kind, every in request.devices.items()}
    return {kind: every[local] for kind, every in request.devices.items()}


def _start(spec: LaunchSpec, rank: int, processor: int) -> Rank:
    """Start one rank; if no process can be forked, return it as already ended with the reason."""
    try:
        return Rank(rank, processor, start(spec))
    except OSError as error:
        reason = f"cannot start: fork: {error.strerror}"
        return Rank(rank, processor, 0, status=NOT_USABLE << 8, end_reason=reason)


def ranks_not_started(
    request: StartRequest, reason: str, *, cut_off: bool = False
) -> dict[int, Rank]:
    """Return all ranks of a request as already ended, because they are not started.

    Args:
        request: the ranks.
        reason: why they are not started.
        cut_off: whether the node has lost contact with the server.
    """
    status = NOT_USABLE << 8
    return {
        rank: Rank(rank, processor, 0, status=status, end_reason=reason, cut_off=cut_off)
        for rank, processor in request.ranks
    }


def exit_of(rank: Rank, failed: Mapping[int, tuple[int, str]], memory: MemoryKills) -> SpooledExit:
    """Return the exit to report for a rank whose process has ended.

    Args:
        rank: a rank whose process has ended.
        failed: exit code and reason of each process, by its id, that could not execute its program.
        memory: knows whether the kernel has killed processes because memory was exhausted.
    """
    assert rank.status is not None
    number = os.WTERMSIG(rank.status) if os.WIFSIGNALED(rank.status) else 0
    code = os.WEXITSTATUS(rank.status) if not number else 0
    reason = rank.end_reason or (rank.failure_text if rank.status else "")
    if rank.pid in failed:
        code, reason = failed[rank.pid]
    elif rank.verdict is not None:
        (code, reason), number = rank.verdict, 0
    elif rank.abort_code is not None and rank.status:
        code, number = rank.abort_code, 0
    elif number == signal.SIGKILL and not rank.end_requested:
        reason = memory.reason()
    elif rank.status and not rank.end_requested and not reason:
        reason = memory.reason_of_failure()
    return SpooledExit(rank.rank, rank.processor, code, number, reason, time.time(), rank.cut_off)


def mpi_variables(request: StartRequest, rank: int, local: int, handle: int) -> dict[str, str]:
    """Return the environment variables that lead a rank's MPI library to its PMI server.

    Args:
        request: the request to start the ranks.
        rank: the number of the rank in ``MPI_COMM_WORLD``.
        local: the index of the rank among those on this node.
        handle: the descriptor of the rank's end of the PMI socket.
    """
    return {
        "PMI_FD": str(handle),
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(request.size),
        "PMI_SPAWNED": "0",
        "MPI_LOCALNRANKS": str(len(request.ranks)),
        "MPI_LOCALRANKID": str(local),
    }


def device_variables(devices: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return the environment variables from which a rank learns its devices, such as GPUs.

    Args:
        devices: the indices of the rank's devices for each kind of device on the node; empty for a
            kind of which the rank has none.
    """
    if not devices:
        return {}
    texts = {kind: ",".join(map(str, indices)) for kind, indices in devices.items()}
    named = " ".join(f"{kind}={text}" for kind, text in texts.items() if text)
    variables = {"PLIANT_DEVICES": named} if named else {}
    if "gpu" in texts:
        # An index that does not exist hides all GPUs; ROCm takes an empty list for all of them.
        visible = texts["gpu"] or "-1"
        variables |= {"CUDA_VISIBLE_DEVICES": visible, "ROCR_VISIBLE_DEVICES": visible}
    return variables


def _for_rank(rank: int, on_line: OnLine) -> Callable[[bytes], None]:
    return lambda line: on_line(rank, line)

"""The ranks of a world as the shim sees them: starting, watching, ending."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pliant.nodectl import procfs
from pliant.nodectl.procfs import Identity
from pliant.nodectl.shim_exec import NOT_USABLE, Program, start
from pliant.nodectl.shim_loop import Channel, Lines, Loop, Timer
from pliant.nodectl.spool import Request, Spool

OnLine = Callable[[int, bytes], None]


@dataclass(slots=True)
class Rank:
    """One started process."""

    rank: int
    processor: int
    pid: int
    pmi: Channel | None = None
    control: Channel | None = None
    ready: bool = False
    status: int | None = None  # of waitpid, once it has ended
    asked: bool = False  # to end, by an order
    abort_code: int | None = None  # given to MPI_Abort, by it or by the rank for which it ended
    end_reason: str = ""  # why it is being ended, for the user
    kill_at: Timer | None = None

    @property
    def live(self) -> bool:
        """Return whether its process runs."""
        return self.status is None

    def close(self) -> None:
        """Close what was shared with it."""
        for channel in (self.pmi, self.control):
            if channel is not None:
                channel.close()
        if self.kill_at is not None:
            self.kill_at.cancel()


def start_ranks(
    loop: Loop, spool: Spool, request: Request, failures: int, lines: tuple[OnLine, OnLine]
) -> dict[int, Rank]:
    """Start all local ranks; `lines` takes what they say to PMI and on their control sockets."""
    ranks = {}
    for local, (rank, processor) in enumerate(request.ranks):
        variables = {**request.environment, "PLIANT_PROCESSOR": str(processor)}
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
        started = ranks[rank] = _start(Program(request, variables, keep, failures), rank, processor)
        for sock in theirs:
            sock.close()
        if request.is_mpi:
            on_pmi, on_control = lines
            started.pmi = Channel(loop, ours[0], Lines(_of(rank, on_pmi)))
            started.control = Channel(loop, ours[1], Lines(_of(rank, on_control)))
    found = [(rank.rank, Identity.of(rank.pid)) for rank in ranks.values() if rank.pid]
    try:
        spool.note_ranks((rank, who) for rank, who in found if who is not None)
    except OSError as error:
        # Whoever looks for them without this note finds them by their environment.
        print(f"{request.world}: cannot note its ranks: {error}", file=sys.stderr, flush=True)
    return ranks


def _start(program: Program, rank: int, processor: int) -> Rank:
    """Start one rank; one for which there is no process has ended at once."""
    try:
        return Rank(rank, processor, start(program))
    except OSError as error:
        reason = f"cannot start: fork: {error.strerror}"
        return Rank(rank, processor, 0, status=NOT_USABLE << 8, end_reason=reason)


def mpi_variables(request: Request, rank: int, local: int, handle: int) -> dict[str, str]:
    """Return what tells an MPI library who it is."""
    return {
        "PMI_FD": str(handle),
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(request.size),
        "PMI_SPAWNED": "0",
        "MPI_LOCALNRANKS": str(len(request.ranks)),
        "MPI_LOCALRANKID": str(local),
    }


def _of(rank: int, on_line: OnLine) -> Callable[[bytes], None]:
    return lambda line: on_line(rank, line)


def ask_to_end(rank: Rank) -> None:
    """Ask a rank and its process group to end; a stopped one is woken to hear it."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        if not signal_group(rank.pid, number):
            send_signal(rank.pid, number)


def kill(rank: Rank) -> None:
    """End a rank and all below it."""
    for pid in (*procfs.descendants(rank.pid), rank.pid):
        send_signal(pid, signal.SIGKILL)


def send_signal(pid: int, number: int) -> bool:
    """Signal a process that may be gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def signal_group(pid: int, number: int) -> bool:
    """Signal the process group of a rank; False when it has not made one yet."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def leftovers(ranks: Iterable[Rank], gone: Rank) -> list[int]:
    """Return what a rank has left behind; all that is there, when it was the last one.

    Whatever lost its parent is a child of this process. Which rank it belongs to shows in its
    session, or, when it has made one of its own, in its environment.
    """
    live = {rank.pid for rank in ranks if rank.live}
    orphans = [pid for pid in procfs.children(os.getpid()) if pid not in live]
    if not orphans:
        return []
    found = [pid for orphan in orphans for pid in (orphan, *procfs.descendants(orphan))]
    stats = {pid: procfs.read_stat(pid) for pid in found}
    running = {pid: stat for pid, stat in stats.items() if stat and stat.state not in "ZX"}
    if not live:
        return list(running)
    mark = f"PLIANT_PROCESSOR={gone.processor}".encode()
    return [
        pid
        for pid, stat in running.items()
        if stat.session == gone.pid or mark in procfs.environment(pid)
    ]

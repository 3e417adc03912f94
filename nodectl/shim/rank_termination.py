"""Signals that end ranks and the processes that they have started: SIGTERM, SIGSTOP, SIGKILL.

The grace time between SIGTERM and SIGKILL is kept elsewhere: for ranks by `shim`, for leftovers of
ranks that have ended by `rank_exits`.

Processes that a rank leaves behind become children of the shim, which ends them, too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable

from pliant.nodectl.host import procfs
from pliant.nodectl.shim.ranks import Rank

#: Rounds of stopping processes that start others, before they are killed.
_MAX_ROUNDS = 100


def ask_to_end(rank: Rank) -> None:
    """Send SIGTERM to a rank and its process group, and SIGCONT in case it is stopped.

    A rank on a terminal also gets SIGHUP, because shells there ignore SIGTERM.
    """
    hangup = [signal.SIGHUP] if procfs.has_terminal(rank.pid) else []
    for number in (*hangup, signal.SIGTERM, signal.SIGCONT):
        if not signal_group(rank.pid, number):
            send_signal(rank.pid, number)


def kill(rank: Rank) -> None:
    """Kill a rank and all its descendants."""
    kill_all(stop_all(lambda: [*procfs.descendants(rank.pid), rank.pid]))


def stop_all(find: Callable[[], Iterable[int]]) -> set[int]:
    """Stop the processes that ``find`` returns (SIGSTOP) until it finds no running one.

    Killing them one after the other may never end if the others fork meanwhile. Stopped processes
    do not fork, so each round finds fewer running ones.

    Returns:
        The ids of all stopped processes.
    """
    found: set[int] = set()
    for _ in range(_MAX_ROUNDS):
        fresh = set(find()) - found
        if not fresh:
            break
        for pid in fresh:
            send_signal(pid, signal.SIGSTOP)
        found |= fresh
    return found


def stop_leftovers(ranks: Iterable[Rank], ended: Rank) -> set[int]:
    """Send SIGSTOP to the processes that an ended rank left running; return their ids."""
    every = list(ranks)
    return stop_all(lambda: leftovers(every, ended))


def ask_all_to_end(pids: Iterable[int]) -> None:
    """Send SIGTERM to processes, and SIGCONT so that stopped ones receive it."""
    for pid in pids:
        send_signal(pid, signal.SIGTERM)
        send_signal(pid, signal.SIGCONT)


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes; some of them may have ended already."""
    for pid in pids:
        send_signal(pid, signal.SIGKILL)


def send_signal(pid: int, number: int) -> bool:
    """Send a signal to a process; return False if it has ended."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def signal_group(pid: int, number: int) -> bool:
    """Send a signal to the process group that rank ``pid`` leads; return False if there is none.

    A rank that was just started leads no process group yet.
    """
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def leftovers(ranks: Iterable[Rank], ended: Rank) -> list[int]:
    """Return the ids of running processes that an ended rank has started and left behind.

    If no rank runs any more, these are all remaining processes. A process whose parent has ended
    becomes a child of the shim. It belongs to the rank in whose session it is or, if it made a
    session of its own, to the rank that its environment names.

    Args:
        ranks: all ranks of the shim.
        ended: one of them, whose process has ended.
    """
    live = {rank.pid for rank in ranks if rank.runs}
    stats = _running_orphans(live)
    if not live:
        return list(stats)
    mark = f"PLIANT_PROCESSOR={ended.processor}".encode()
    return [
        pid
        for pid, stat in stats.items()
        if stat.session == ended.pid or mark in procfs.environment(pid)
    ]


def _running_orphans(live: set[int]) -> dict[int, procfs.Stat]:
    """Return the running descendants of this process that belong to no living rank.

    If a process ends while the process tree is read, its children may become children of the shim
    after the shim's children were listed. So if no orphan is running, the tree is read again until
    a reading finds no orphan that is new since the previous reading.
    """
    ended: set[int] = set()
    while True:
        orphans = [pid for pid in procfs.children(os.getpid()) if pid not in live]
        found = [pid for orphan in orphans for pid in (orphan, *procfs.descendants(orphan))]
        stats = {pid: procfs.read_stat(pid) for pid in found}
        running = {pid: stat for pid, stat in stats.items() if stat and stat.state not in "ZX"}
        if running or ended >= set(orphans):
            return running
        ended = set(orphans)

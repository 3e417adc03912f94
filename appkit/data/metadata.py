"""Local facts that plans need: gathered on all processes, once for all entries.

How many items a process has, or where its matrix rows may be cut, nobody else knows. Entries whose
plan depends on such facts say in how many rounds they tell them (``Entry.rounds``); where no entry
has any there is no exchange.
"""

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from pliant.appkit.data.entry import Entry, GatheredMetadata
from pliant.appkit.errors import AppkitError, DistributionError
from pliant.appkit.mpi import death_watch
from pliant.appkit.redistribution.plan import RankMap
from pliant.faults import failpoint

#: Of messages between resizes: above those of registered things, within what MPI guarantees.
REBALANCE_TAG = 32_000


def gather_metadata(
    entries: Sequence[Entry], rank_map: RankMap, comm: MPI.Intracomm, rounds: int, error: str
) -> tuple[list[GatheredMetadata], str]:
    """Exchange the facts of all entries; collective.

    Args:
        entries: the same on all processes, unless there is an error.
        rank_map: between the processes of ``comm``.
        comm: all who take part.
        rounds: the largest of the entries', the same on all processes.
        error: why this process has nothing to tell; empty: it has.

    Returns:
        For each entry what was told, and the first error of all (then what was told is of no use).
    """
    gathered: list[list[tuple[Any, ...]]] = [[] for _ in entries]
    for step in range(rounds):
        failpoint("appkit.census")
        facts, error = _collect_local(entries, rank_map, comm.rank, gathered, step, error)
        try:
            told = death_watch.allgather(comm, (error, facts))
        except (MPI.Exception, death_watch.JoiningRankLost) as fault:
            return [tuple(each) for each in gathered], str(fault)
        error = next((text for text, _ in told if text), "")
        if error:
            break
        for place, entry in enumerate(entries):
            if step < entry.metadata_rounds:
                gathered[place].append(tuple(own[place] for _, own in told))
    return [tuple(each) for each in gathered], error


def _collect_local(
    entries: Sequence[Entry],
    rank_map: RankMap,
    me: int,
    gathered: list[list[tuple[Any, ...]]],
    step: int,
    error: str,
) -> tuple[list[Any], str]:
    """What this process has to tell in a round, and what went wrong."""
    facts: list[Any] = [None] * len(entries)
    if error or me not in rank_map.old:
        return facts, error
    try:
        for place, entry in enumerate(entries):
            if step < entry.metadata_rounds:
                facts[place] = entry.local_metadata(rank_map, me, tuple(gathered[place]))
    except (AppkitError, MemoryError) as fault:
        return facts, error_text(fault)
    return facts, ""


def error_text(fault: AppkitError | MemoryError) -> str:
    """What is wrong, for those who decide together; never empty."""
    return str(fault) if isinstance(fault, AppkitError) else f"MemoryError: {fault}"


def rebalance_entries(entries: Sequence[Entry], comm: MPI.Intracomm) -> int:
    """Distribute entries anew among the present processes; collective.

    Args:
        entries: in order of registration.
        comm: the job's communicator.

    Returns:
        Bytes that changed their process.

    Raises:
        DistributionError: it cannot be done; everything is as it was, on all processes.
    """
    rank_map = RankMap.identity(comm.size)
    gathered, error = gather_metadata(
        entries, rank_map, comm, max(entry.metadata_rounds for entry in entries), ""
    )
    moved = 0
    try:
        if not error:
            for entry, told in zip(entries, gathered, strict=True):
                entry.prepare(rank_map, comm.rank, told)
    except (AppkitError, MemoryError) as fault:
        error = error_text(fault)
    try:
        _check_all_succeeded(comm, error)
        try:
            for entry, told in zip(entries, gathered, strict=True):
                plan = entry.plan(rank_map, told)
                moved += plan.bytes_moved
                entry.move(plan, comm, REBALANCE_TAG)
        except (AppkitError, MemoryError) as fault:
            error = error_text(fault)
        _check_all_succeeded(comm, error)
    except BaseException:
        for entry in entries:
            entry.rollback()
        raise
    for entry in entries:
        entry.commit()
    return moved


def _check_all_succeeded(comm: MPI.Intracomm, error: str) -> None:
    """Go on if all can.

    Raises:
        DistributionError: somebody cannot.
    """
    reasons = [reason for reason in comm.allgather(error) if reason]
    if reasons:
        raise DistributionError(reasons[0])

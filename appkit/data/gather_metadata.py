"""Gather the local metadata that plans need, once for all entries, and rebalance entries.

Only a process itself knows how many items it has, or where its matrix rows may be cut. Entries
whose plan depends on such metadata state the number of exchanges
(``RegisteredData.metadata_rounds``). If no entry needs any, nothing is exchanged.
"""

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from pliant.appkit.appkit_errors import AppkitError, DistributionError, JoiningRankLost
from pliant.appkit.data.registered_data import GatheredMetadata, RegisteredData
from pliant.appkit.mpi import joining_rank_watch, tags
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.faults import failpoint


def gather_metadata(
    entries: Sequence[RegisteredData],
    rank_map: RankMap,
    comm: MPI.Intracomm,
    rounds: int,
    error: str,
) -> tuple[list[GatheredMetadata], str]:
    """Exchange the metadata of all registered objects between all processes; collective.

    Args:
        entries: The registered objects; the same on all processes, unless there is an error.
        rank_map: The processes before and after, as ranks of ``comm``.
        comm: Contains all processes of the redistribution.
        rounds: The largest number of rounds of the entries, the same on all processes.
        error: Why this process cannot contribute, empty if it can.

    Returns:
        The metadata of each entry, and the first error of all processes. If there is an error, the
        metadata are incomplete.
    """
    gathered: list[list[tuple[Any, ...]]] = [[] for _ in entries]
    for step in range(rounds):
        failpoint("appkit.census")
        facts, error = _collect_local(entries, rank_map, comm.rank, gathered, step, error)
        try:
            told = joining_rank_watch.allgather(comm, (error, facts))
        except (MPI.Exception, JoiningRankLost) as fault:
            return [tuple(each) for each in gathered], str(fault)
        error = next((text for text, _ in told if text), "")
        if error:
            break
        for place, entry in enumerate(entries):
            if step < entry.metadata_rounds:
                gathered[place].append(tuple(own[place] for _, own in told))
    return [tuple(each) for each in gathered], error


def _collect_local(
    entries: Sequence[RegisteredData],
    rank_map: RankMap,
    me: int,
    gathered: list[list[tuple[Any, ...]]],
    step: int,
    error: str,
) -> tuple[list[Any], str]:
    """Return the metadata that this process contributes to round ``step``, and an error text.

    The metadata are one value for each entry; None for an entry that needs fewer rounds. The text
    is empty if there is no error.
    """
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
    """Return the text of an error for the exchange in which processes report whether they failed.

    It is never empty, because an empty text stands for success.
    """
    return str(fault) if isinstance(fault, AppkitError) else f"MemoryError: {fault}"


def rebalance_entries(entries: Sequence[RegisteredData], comm: MPI.Intracomm) -> int:
    """Redistribute registered objects among the present processes by their rules; collective.

    Args:
        entries: The objects, in order of registration.
        comm: The job's communicator.

    Returns:
        Bytes that were sent to another process, over the whole job.

    Raises:
        DistributionError: A process failed; the data are unchanged on all processes.
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
                entry.move(plan, comm, tags.REBALANCE)
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
    """Exchange the error texts of all processes, and raise the first that is not empty; collective.

    Raises:
        DistributionError: A process has an error.
    """
    reasons = [reason for reason in comm.allgather(error) if reason]
    if reasons:
        raise DistributionError(reasons[0])

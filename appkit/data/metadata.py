"""Local facts that plans need: gathered on all processes, once for all entries.

How many items a process has, or where its matrix rows may be cut, nobody else knows. Entries whose
plan depends on such facts say in how many rounds they tell them (``Entry.rounds``); where no entry
has any there is no exchange.
"""

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from pliant.appkit.data.entry import Entry, Known
from pliant.appkit.errors import AppkitError, DistributionError
from pliant.appkit.mpi import death_watch
from pliant.appkit.redistribution.plan import Crossing
from pliant.faults import failpoint

#: Of messages between resizes: above those of registered things, within what MPI guarantees.
REBALANCE_TAG = 32_000


def survey(
    entries: Sequence[Entry], crossing: Crossing, comm: MPI.Intracomm, rounds: int, error: str
) -> tuple[list[Known], str]:
    """Exchange the facts of all entries; collective.

    Args:
        entries: the same on all processes, unless there is an error.
        crossing: between the processes of ``comm``.
        comm: all who take part.
        rounds: the largest of the entries', the same on all processes.
        error: why this process has nothing to tell; empty: it has.

    Returns:
        For each entry what was told, and the first error of all (then what was told is of no use).
    """
    known: list[list[tuple[Any, ...]]] = [[] for _ in entries]
    for step in range(rounds):
        failpoint("appkit.census")
        facts, error = _tell(entries, crossing, comm.rank, known, step, error)
        try:
            told = death_watch.allgather(comm, (error, facts))
        except (MPI.Exception, death_watch.JoiningRankLost) as fault:
            return [tuple(each) for each in known], str(fault)
        error = next((text for text, _ in told if text), "")
        if error:
            break
        for place, entry in enumerate(entries):
            if step < entry.rounds:
                known[place].append(tuple(own[place] for _, own in told))
    return [tuple(each) for each in known], error


def _tell(
    entries: Sequence[Entry],
    crossing: Crossing,
    me: int,
    known: list[list[tuple[Any, ...]]],
    step: int,
    error: str,
) -> tuple[list[Any], str]:
    """What this process has to tell in a round, and what went wrong."""
    facts: list[Any] = [None] * len(entries)
    if error or me not in crossing.old:
        return facts, error
    try:
        for place, entry in enumerate(entries):
            if step < entry.rounds:
                facts[place] = entry.census(crossing, me, tuple(known[place]))
    except (AppkitError, MemoryError) as fault:
        return facts, in_words(fault)
    return facts, ""


def in_words(fault: AppkitError | MemoryError) -> str:
    """What is wrong, for those who decide together; never empty."""
    return str(fault) if isinstance(fault, AppkitError) else f"MemoryError: {fault}"


def redistribute(entries: Sequence[Entry], comm: MPI.Intracomm) -> int:
    """Distribute entries anew among the present processes; collective.

    Args:
        entries: in order of registration.
        comm: the job's communicator.

    Returns:
        Bytes that changed their process.

    Raises:
        DistributionError: it cannot be done; everything is as it was, on all processes.
    """
    crossing = Crossing.among(comm.size)
    known, error = survey(entries, crossing, comm, max(entry.rounds for entry in entries), "")
    moved = 0
    try:
        if not error:
            for entry, told in zip(entries, known, strict=True):
                entry.prepare(crossing, comm.rank, told)
    except (AppkitError, MemoryError) as fault:
        error = in_words(fault)
    try:
        _together(comm, error)
        try:
            for entry, told in zip(entries, known, strict=True):
                plan = entry.plan(crossing, told)
                moved += plan.bytes_moved
                entry.move(plan, comm, REBALANCE_TAG)
        except (AppkitError, MemoryError) as fault:
            error = in_words(fault)
        _together(comm, error)
    except BaseException:
        for entry in entries:
            entry.rollback()
        raise
    for entry in entries:
        entry.commit()
    return moved


def _together(comm: MPI.Intracomm, error: str) -> None:
    """Go on if all can.

    Raises:
        DistributionError: somebody cannot.
    """
    reasons = [reason for reason in comm.allgather(error) if reason]
    if reasons:
        raise DistributionError(reasons[0])

"""One resize, or one checkpoint, of registered things on ranks that are threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pliant.appkit.data.gather_metadata import gather_metadata
from pliant.appkit.mpi.membership import Membership, MembershipPhase
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter, SavedArray
from rankkit.comm import run_ranks

#: Makes the registered things of a process.
Make = Callable[[Membership], list[Any]]
#: The registered things of each rank.
Parts: TypeAlias = list[list[Any]]


def member(rank: int, size: int) -> Membership:
    """Stand in for a process of a job, without a communicator."""
    membership = Membership(None)
    membership.rank, membership.size, membership.phase = rank, size, MembershipPhase.MEMBER
    return membership


def rank_map(before: int, after: int, *, first: bool = False) -> RankMap:
    """From size to size; in a shrinkage the last ranks leave, or the ``first``."""
    if after >= before:
        return RankMap.expand(before, after)
    leaving = range(before - after) if first else range(after, before)
    return RankMap.shrink(before, leaving)


def resize(make: Make, parts: Parts, way: RankMap, *, commit: bool = True) -> tuple[Parts, int]:
    """Let the parts go their way; those of the new ranks, and the bytes that were sent.

    Checks on the way that what is planned is what is sent. Without ``commit`` it is rolled back,
    and the parts are the old ones.
    """
    everyone = sorted({*way.old, *way.new})
    mine = {process: parts[rank] for rank, process in enumerate(way.old)}
    for process in everyone:
        if process not in mine:
            joining_rank = Membership(None)
            mine[process] = make(joining_rank)
            if process % 2:  # some have the memory before they know more; it makes no difference
                for entry in mine[process]:
                    entry.preallocate(len(way.new), process)

    def one(comm: Any) -> list[int]:
        entries = mine[comm.rank]
        rounds = max(entry.metadata_rounds for entry in entries)
        known, error = gather_metadata(entries, way, comm, rounds, "")
        assert not error, error
        for entry, told in zip(entries, known, strict=True):
            entry.prepare(way, comm.rank, told)
        planned = []
        for tag, (entry, told) in enumerate(zip(entries, known, strict=True)):
            plan = entry.plan(way, told)
            entry.move(plan, comm, tag)
            planned += [plan.bytes_moved, plan.messages]
        for entry in entries:
            if commit:
                entry.commit()
            else:
                entry.rollback()
        return planned

    plans, world = run_ranks(len(everyone), one)
    assert all(plan == plans[0] for plan in plans), "all make the same plan"
    assert sum(plans[0][::2]) == sum(world.bytes_sent)
    assert len(world.boxes) <= sum(plans[0][1::2]), "a message for each pair and range at least"
    assert bool(sum(plans[0][::2])) == bool(sum(plans[0][1::2]))
    if not commit:
        return [mine[process] for process in way.old], sum(world.bytes_sent)
    for rank, process in enumerate(way.new):
        for entry in mine[process]:
            membership = entry._membership
            membership.rank, membership.size = rank, len(way.new)
            membership.phase = MembershipPhase.MEMBER
    return [mine[process] for process in way.new], sum(world.bytes_sent)


def save(parts: Parts, folder: Path) -> list[list[SavedArray]]:
    """Have all ranks write; what they wrote of each thing."""
    written: list[list[SavedArray]] = [[] for _ in parts[0]]
    for rank, entries in enumerate(parts):
        for place, entry in enumerate(entries):
            out = ArrayWriter(folder, f"{rank}-{place}", rank)
            entry.save(out)
            out.close()
            written[place] += out.arrays
    return written


def load(
    make: Make, folder: Path, written: Sequence[list[SavedArray]], old: int, new: int
) -> Parts:
    """Have ``new`` ranks go on from what ``old`` wrote."""
    parts = []
    for rank in range(new):
        entries = make(member(rank, new))
        for entry, own in zip(entries, written, strict=True):
            entry.restore(ArrayReader(folder, own, old), rank, new)
        parts.append(entries)
    return parts

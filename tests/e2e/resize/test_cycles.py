"""One job through many growths and shrinks in a row: right data, and nothing that adds up."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass

import psutil
import pytest

from clusterkit.cluster import Cluster, zombies_below
from clusterkit.counter import Counter

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]

#: A descriptor or a thread that every cycle leaks shows in far fewer; 40 for a closer look.
CYCLES = int(os.environ.get("PLIANT_TEST_CYCLES", "15"))
#: Daemons and ranks have warmed up after this many; caches and pools are filled.
WARM = 5
LARGE = (4, 3, 6, 3, 5)
SMALL = (2, 1, 3)
#: A leak of half a megabyte in every cycle is found, what allocators do is not.
RANK_SLACK, RANK_PER_CYCLE = 2 << 20, 1 << 18
#: Cycles in which rank 0 leaves: some in a row, then so few that ranks live long enough to tell.
OLDEST_LEAVE = {1, 2, 3, 7, 23, 39}
#: Ranks that lived for fewer cycles tell nothing.
LONG = 8


@dataclass(frozen=True)
class Use:
    """What a process uses."""

    resident: int
    descriptors: int
    threads: int


def use(process: psutil.Process) -> Use:
    with process.oneshot():
        return Use(process.memory_info().rss, process.num_fds(), process.num_threads())


def least(uses: list[Use]) -> Use:
    """Return the least of a few cycles in a row; what a rank uses varies with the job's size."""
    return Use(
        min(use.resident for use in uses),
        min(use.descriptors for use in uses),
        min(use.threads for use in uses),
    )


def leavers(cycle: int, ranks: list[int], number: int, slots: int) -> list[int]:
    """Choose who leaves: the newest, the oldest with rank 0, or from the middle, in turn."""
    if cycle in OLDEST_LEAVE:
        return ranks[:number]
    if cycle % 3 == 2:
        return ranks[1 : 1 + number]
    if cycle % 3 == 1:
        whole = [p for p in ranks if all(q in ranks[1:] for q in neighbours(p, slots))]
        rest = [p for p in reversed(ranks) if p not in whole]
        return (whole[: number - number % slots] + rest)[:number]
    return ranks[len(ranks) - number :]


def neighbours(processor: int, slots: int) -> range:
    first = processor - processor % slots
    return range(first, first + slots)


def names(cluster: Cluster, leaving: list[int]) -> list[str]:
    """Name whole nodes where all slots leave, slots otherwise."""
    found: dict[str, None] = {}
    for processor in leaving:
        node = cluster.place(processor).partition("/")[0]
        whole = all(other in leaving for other in neighbours(processor, cluster.slots))
        found[node if whole else cluster.place(processor)] = None
    return list(found)


def test_many_resizes_in_a_row_keep_the_data_and_leak_nothing(
    cluster: Cluster, counter: Counter
) -> None:
    ranks = list(cluster.history(counter.id, "job.started")[0].data["processors"])
    daemons = cluster.daemons()
    assert len(daemons) == 9
    warm: dict[str, Use] = {}
    seen: dict[psutil.Process, list[Use]] = defaultdict(list)
    for cycle in range(1, CYCLES + 1):
        large, small = LARGE[cycle % len(LARGE)], SMALL[cycle % len(SMALL)]
        small = min(small, large - 1)
        if large > len(ranks):
            grown = cluster.resize(counter.id, large).data["processors"]
            assert grown[: len(ranks)] == ranks, "survivors first"
            ranks = list(grown)
        leaving = leavers(cycle, ranks, len(ranks) - small, cluster.slots)
        after = cluster.resize(counter.id, small, names(cluster, leaving)).data["processors"]
        ranks = [processor for processor in ranks if processor not in leaving]
        assert list(after) == ranks, "the order of the survivors stays"
        alive = cluster.ranks(counter.id)
        assert [rank.processor for rank in alive] == sorted(ranks)
        for rank in alive:
            seen[rank.process].append(use(rank.process))
        if cycle == WARM:
            warm = {name: use(process) for name, process in daemons.items()}
    end = {name: use(process) for name, process in daemons.items()}
    assert zombies_below(list(daemons.values())) == []
    counter.finish()
    kinds = {event.kind for event in cluster.history(counter.id)}
    assert not kinds & {"job.warning", "job.failed", "resize.rolled_back", "offer.expired"}
    report(warm, end, seen)
    check_daemons(warm, end)
    check_ranks(seen)
    assert cluster.ranks(counter.id) == []


def report(
    warm: dict[str, Use], end: dict[str, Use], seen: dict[psutil.Process, list[Use]]
) -> None:
    """Print the figures; pytest shows them when the test fails, or with -s."""
    for name, before in warm.items():
        print(f"{name}: {before} -> {end[name]}")
    for process, uses in seen.items():
        if len(uses) >= LONG:
            print(f"rank {process.pid}, {len(uses)} cycles: {uses[1]} -> {uses[-1]}; all:")
            print("descriptors:", *(each.descriptors for each in uses))
            print("megabytes:", *(f"{each.resident / (1 << 20):.1f}" for each in uses))


def check_daemons(warm: dict[str, Use], end: dict[str, Use]) -> None:
    for name, before in warm.items():
        after = end[name]
        assert after.descriptors <= before.descriptors + 2, f"{name} keeps descriptors"
        assert after.threads <= before.threads + 2, f"{name} keeps threads"
        assert after.resident <= before.resident * 1.15, f"{name} grows"


def check_ranks(seen: dict[psutil.Process, list[Use]]) -> None:
    survivors = [uses for uses in seen.values() if len(uses) >= LONG]
    assert survivors, "nobody survived for long"
    for uses in survivors:
        turn = len(SMALL)
        before, after = least(uses[1 : 1 + turn]), least(uses[-turn:])
        allowed = RANK_SLACK + RANK_PER_CYCLE * (len(uses) - turn - 1)
        assert after.descriptors <= before.descriptors + 2, "a rank keeps descriptors"
        assert after.threads <= before.threads + 2, "a rank keeps threads"
        assert after.resident <= before.resident + allowed, "a rank grows"

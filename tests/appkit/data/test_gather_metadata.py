"""Facts are gathered once for all, and only where some are needed. No MPI."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.appkit.data.gather_metadata import gather_metadata
from pliant.appkit.data.registered_data import Registry
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.item_distribution import Even, Weighted
from pliant.appkit.kinds.items import Items
from pliant.appkit.redistribution.transfer_plan import RankMap
from rankkit import member, run_ranks


def things(rank: int, size: int) -> list[Any]:
    membership = member(rank, size)
    entries = [
        Items(membership, "even", "f8", (), Even("even")),
        BlockArray(membership, "fixed", (9,), axis=0, halo=0, dtype="f8"),
        Items(membership, "weighed", "f8", (), Weighted("weighed", lambda items: items)),
    ]
    for entry in entries:
        if isinstance(entry, Items):
            entry.start_with(lambda rank, _: np.full(rank + 1, 1.0))
    return entries


def test_each_entry_gets_its_own_rounds() -> None:
    way = RankMap.expand(2, 3)

    def one(comm: Any) -> Any:
        return gather_metadata(things(comm.rank, 2), way, comm, 2, "")

    results, _ = run_ranks(3, one)
    assert results[0] == results[1] == results[2], "joining ranks hear the same, and tell nothing"
    (even, fixed, weighed), error = results[0]
    assert error == ""
    assert even == ((1, 2, None),)
    assert fixed == ()
    assert weighed == (((1, 1.0), (2, 2.0), None), ([], [(1, 0), (2, 1)], None))


def test_one_error_is_everybodys() -> None:
    way = RankMap.identity(2)

    def one(comm: Any) -> Any:
        return gather_metadata(
            things(comm.rank, 2), way, comm, 2, "a joining rank" if comm.rank else ""
        )[1]

    assert run_ranks(2, one)[0] == ["a joining rank", "a joining rank"]


def test_nothing_is_exchanged_for_fixed_layouts() -> None:
    registry = Registry()
    registry.add(things(0, 1)[1])
    assert registry.metadata_rounds == 0
    nobody: Any = None  # no communicator is touched
    assert gather_metadata(list(registry), RankMap.identity(1), nobody, 0, "") == ([()], "")
    registry.add(things(0, 1)[2])
    assert registry.metadata_rounds == 2

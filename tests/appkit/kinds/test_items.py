"""Items: each is there once, in order or at its owner, and the fewest bytes move. No MPI."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import CheckpointError, DistributionError
from pliant.appkit.data.gather_metadata import gather_metadata, rebalance_entries
from pliant.appkit.kinds.item_distribution import (
    ByOwner,
    Even,
    ItemDistribution,
    ItemExchange,
    Weighted,
)
from pliant.appkit.kinds.items import Items
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution import packed_exchange
from pliant.appkit.redistribution.transfer_plan import (
    RankMap,
    Transfers,
)
from rankkit import Parts, load, member, resize, run_ranks, save

KIND = np.dtype([("id", "i8"), ("x", "f4", 3)])


def spread(items: Any, size: int) -> Any:
    """An owner for each item that has nothing to do with where it is."""
    return items["id"] * 7 // 3 % size


def heavy(items: Any) -> Any:
    return items["id"] % 5


RULES: dict[str, Callable[[], ItemDistribution]] = {
    "even": lambda: Even("items"),
    "weight": lambda: Weighted("items", heavy),
    "owner": lambda: ByOwner("items", spread),
}


def make(kind: str) -> Any:
    return lambda membership: [Items(membership, "p", KIND, (), RULES[kind]())]


def begin(kind: str, counts: list[int]) -> Parts:
    """Processes with so many items each, numbered in order."""
    parts, number = [], 0
    for rank, count in enumerate(counts):
        entries = make(kind)(member(rank, len(counts)))
        items = np.zeros(count, KIND)
        items["id"] = np.arange(number, number + count)
        items["x"] = items["id"][:, None] + [0.25, 0.5, 0.75]
        number += count
        entries[0].start_with(lambda *_, items=items: items)
        parts.append(entries)
    return parts


def numbers(parts: Parts) -> list[list[int]]:
    for entries in parts:
        items = entries[0].local
        assert (items["x"] == items["id"][:, None] + [0.25, 0.5, 0.75]).all()
    return [entries[0].local["id"].tolist() for entries in parts]


def even_shares(total: int, parts: int) -> list[list[int]]:
    return [list(range(total * p // parts, total * (p + 1) // parts)) for p in range(parts)]


def fewest(old: list[list[int]], new: list[list[int]], way: RankMap) -> int:
    """Bytes of the items whose process is another one afterwards."""
    was = {item: way.old[rank] for rank, own in enumerate(old) for item in own}
    will = {item: way.new[rank] for rank, own in enumerate(new) for item in own}
    assert was.keys() == will.keys()
    return KIND.itemsize * sum(was[item] != will[item] for item in was)


def check(kind: str, new: list[list[int]]) -> None:
    """Everybody has what the rule says."""
    total = sum(map(len, new))
    if kind == "even":
        assert new == even_shares(total, len(new))
    elif kind == "weight":
        assert list(itertools.chain(*new)) == list(range(total)), "the order stays"
        weights = [sum(item % 5 for item in own) for own in new]
        assert max(weights) <= sum(weights) / len(weights) + 4, "by the heaviest at most"
    else:
        for rank, own in enumerate(new):
            assert all(item * 7 // 3 % len(new) == rank for item in own)


def test_items_by_owner_keep_the_order_of_their_senders() -> None:
    parts, _ = resize(make("owner"), begin("owner", [30, 0, 50]), RankMap.expand(3, 4))
    for own in numbers(parts):
        assert own == sorted(own)


def test_more_than_two_to_the_31_items() -> None:
    way = RankMap.expand(2, 3)
    plan = Even("items").plan(ItemExchange(way, 0, ((3 << 32, 3 << 32, None),)), 10)
    assert plan.bytes_moved == 10 * (3 << 32), "a third of the first half, two of the second"
    sends = ByOwner("items", spread).plan(
        ItemExchange(way, 0, (([0, 1 << 33, 5], [1, 2, 0], None),)), 3
    )
    assert sends.bytes_moved == 3 * ((1 << 33) + 5 + 1)
    assert packed_exchange.cells_per_message(sends, 3) * 3 <= packed_exchange.STAGE_BYTES // 3
    assert packed_exchange.cells_per_message(Transfers((), 1 << 40), 3) == 1


def test_weightless_items_go_by_number() -> None:
    rule: ItemDistribution = Weighted("items", lambda items: np.zeros(len(items)))

    def one(membership: Membership) -> list[Any]:
        return [Items(membership, "p", KIND, (), rule)]

    parts, _ = resize(one, begin("even", [7]), RankMap.expand(1, 1))
    start = begin("even", [7])
    start[0][0] = Items(member(0, 1), "p", KIND, (), rule)
    start[0][0].start_with(lambda *_: parts[0][0].local)
    grown, _ = resize(one, start, RankMap.expand(1, 3))
    assert numbers(grown) == even_shares(7, 3)


def test_rebalance_is_a_resize_of_the_same_processes() -> None:
    start = begin("owner", [4, 0, 11])
    old = numbers(start)

    def one(comm: Any) -> int:
        return rebalance_entries(start[comm.rank], comm)

    moved, world = run_ranks(3, one)
    new = numbers(start)
    check("owner", new)
    assert moved == [sum(world.bytes_sent)] * 3 == [fewest(old, new, RankMap.identity(3))] * 3
    again, _ = run_ranks(3, one)
    assert again == [0, 0, 0]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (ByOwner("items 'p'", lambda items, _: items["id"]), "gave rank 2: there are ranks 0"),
        (ByOwner("items 'p'", lambda items, _: items["id"] - 1), "gave rank -1"),
        (ByOwner("items 'p'", lambda *_: [0]), r"shape \(1,\) and type int64 for"),
        (ByOwner("items 'p'", lambda items, _: items["x"]), "one rank for each"),
        (ByOwner("items 'p'", lambda *_: 1 / 0), "owner raised ZeroDivisionError"),
        (Weighted("items 'p'", lambda items: -items["id"]), "not negative, for each"),
        (Weighted("items 'p'", lambda items: items["id"] + np.nan), "finite number"),
        (Weighted("items 'p'", lambda _: [1.0]), r"shape \(1,\) for 3"),
        (Weighted("items 'p'", lambda items: items["y"]), "weight raised ValueError"),
    ],
)
def test_wrong_functions_raise_on_all_ranks_and_change_nothing(
    rule: ItemDistribution, text: str
) -> None:
    start = begin("even", [3, 3])
    old = numbers(start)
    start[1][0]._distribution = rule
    start[0][0]._distribution = rule
    for entries in start:
        entries[0].metadata_rounds = rule.metadata_rounds

    def one(comm: Any) -> None:
        with pytest.raises(DistributionError, match=text):
            rebalance_entries(start[comm.rank], comm)
        _, error = gather_metadata(
            start[comm.rank], RankMap.identity(2), comm, rule.metadata_rounds, ""
        )
        assert error.startswith("items 'p'")

    run_ranks(2, one)
    assert numbers(start) == old


def test_what_is_not_an_item_is_refused() -> None:
    items = Items(member(0, 1), "p", "f8", (3,), Even("items"))
    items.start_with(None)
    assert items.local.shape == (0, 3)
    with pytest.raises(DistributionError, match=r"items of shape \(3,\) need \(n, 3\)"):
        items.local = np.zeros((3, 4))
    mine = np.ones((2, 3))
    items.local = mine
    mine[:] = 7
    assert items.local.sum() == 6, "what the program goes on using is not shared"
    items.local = [[1, 2, 3]]
    assert len(items) == 1
    with pytest.raises(ValueError, match="Python objects do not move"):
        Items(member(0, 1), "p", object, (), Even("items"))
    with pytest.raises(ValueError, match="negative length"):
        Items(member(0, 1), "p", "f8", (-1,), Even("items"))


def test_damage_is_found(tmp_path: Path) -> None:
    written = save(begin("owner", [5, 5]), tmp_path)
    (tmp_path / "1-0").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is cut off"):
        load(make("owner"), tmp_path, written, 2, 3)

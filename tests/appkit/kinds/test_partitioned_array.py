"""Arrays by an owner map: every cell at its owner, the fewest bytes move. No MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import CheckpointError, DistributionError
from pliant.appkit.kinds.partitioned_array import PartitionedArray, spread_parts
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.appkit.storage.array_files import ArrayReader
from rankkit import Parts, member, rank_map, resize, save

N = 47


def scattered(size: int) -> Any:
    """Uneven: the first ranks have most."""
    cell = np.arange(N)
    return cell * cell % 29 % (2 * size) % size


def make(owner: Any, shape: tuple[int, ...] = (N, 2)) -> Any:
    return lambda membership: [PartitionedArray(membership, "a", shape, "f4", owner)]


def whole(shape: tuple[int, ...]) -> Any:
    return np.arange(1, np.prod(shape) + 1).reshape(shape)


def begin(make_one: Any, size: int) -> Parts:
    parts = [make_one(member(rank, size)) for rank in range(size)]
    for (array,) in parts:
        array.start_with(whole(array.shape).__getitem__)
    return parts


def check(owner: Any, parts: Parts) -> None:
    owners = np.asarray(owner(len(parts)))
    for rank, (array,) in enumerate(parts):
        assert array.cells.tolist() == np.flatnonzero(owners == rank).tolist()
        assert np.array_equal(array.local, whole(array.shape)[owners == rank])
        assert np.array_equal(array.owners, owners)


def fewest(owner: Any, way: RankMap, cell_bytes: int = 8) -> int:
    was = np.array(way.old)[owner(len(way.old))]
    will = np.array(way.new)[owner(len(way.new))]
    return cell_bytes * int((was != will).sum())


def test_parts_with_numbers_are_shared_out() -> None:
    numbers = np.arange(N) % 6
    owner = spread_parts("a", numbers)
    assert owner(6).tolist() == owner(9).tolist() == numbers.tolist()
    assert [set(np.unique(numbers[owner(4) == rank])) for rank in range(4)] == [
        {0},
        {1, 2},
        {3},
        {4, 5},
    ]
    assert set(owner(1)) == {0}
    for before, after in ((1, 4), (4, 6), (6, 8), (8, 3)):
        parts, sent = resize(make(owner), begin(make(owner), before), rank_map(before, after))
        check(owner, parts)
        assert sent == fewest(owner, rank_map(before, after))


def test_missing_or_unfit_cells_are_named(tmp_path: Path) -> None:
    written = save(begin(make(scattered), 3), tmp_path)
    (array,) = make(scattered)(member(0, 2))
    missing = int(((scattered(3) == 2) & (scattered(2) == 0)).sum())
    assert missing > 0
    with pytest.raises(CheckpointError, match=f"array 'a': {missing} cells are not there"):
        array.restore(ArrayReader(tmp_path, written[0][:2], 3), 0, 2)
    (other,) = make(lambda size: np.arange(N) % size)(member(0, 2))
    with pytest.raises(CheckpointError, match=r"owner\(3\) gives rank 0 16 cells, it had"):
        other.restore(ArrayReader(tmp_path, written[0], 3), 0, 2)


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (lambda _: [0] * 3, rf"shape \(3,\) and type int64: .* each of {N} cells"),
        (lambda _: np.zeros(N), "type float64"),
        (lambda _: np.full(N, 2), "gave rank 2: there are ranks 0 to 1"),
        (lambda _: np.full(N, -1), "gave rank -1"),
        (lambda _: 1 / 0, r"owner\(2\) raised ZeroDivisionError"),
        (spread_parts("a", np.zeros(N)), "type float64"),
    ],
)
def test_wrong_maps_are_refused(owner: Any, text: str) -> None:
    with pytest.raises(DistributionError, match=text):
        begin(make(owner), 2)


def test_wrong_terms_are_refused() -> None:
    for shape in ((), (-1,)):
        with pytest.raises(ValueError, match="is not a shape with cells"):
            PartitionedArray(member(0, 1), "a", shape, "f4", scattered)
    with pytest.raises(ValueError, match="Python objects do not move"):
        PartitionedArray(member(0, 1), "a", (1,), object, scattered)


def test_an_array_without_cells_is_resized() -> None:
    nobody = make(lambda _: [], (0,))
    parts, sent = resize(nobody, begin(nobody, 2), RankMap.expand(2, 3))
    assert sent == 0
    assert parts[2][0].local.shape == (0,)


def test_the_checksum_tells_other_owners_of_as_many_cells() -> None:
    way = RankMap.identity(2)

    def checksum(owners: list[int]) -> tuple[int, Any]:
        (array,) = make(lambda _: owners, (4,))(member(0, 2))
        array.prepare(way, 0)
        plan = array.plan(way)
        return array.plan_checksum(plan), plan

    (one, plan), (other, same_plan) = checksum([0, 0, 1, 1]), checksum([0, 1, 0, 1])
    assert plan == same_plan
    assert one != other

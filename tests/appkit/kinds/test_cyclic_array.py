"""Cyclic arrays: the grid of processes, damaged checkpoints, wrong arguments. No MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pliant.appkit.appkit_errors import CheckpointError, DistributionError
from pliant.appkit.kinds.cyclic_array import CyclicArray
from pliant.appkit.redistribution.cyclic_layout import BlockIntersection, CyclicLayout, square_grid
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.appkit.storage.array_files import ArrayReader
from rankkit import member, save
from rankkit.kinds import Cyclic

KIND = Cyclic("cyclic", (41,), (0,), (1,))


def line(size: int) -> tuple[int, ...]:
    return (size,)


def test_a_process_knows_its_place_in_the_grid() -> None:
    parts = Cyclic("block_cyclic", (13, 11), (0, 1), (2, 3), square_grid).start(4)
    assert parts[3][0].grid == (2, 2)
    assert [array.place for (array,) in parts] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_more_than_two_to_the_31_cells() -> None:
    extent = (1 << 40) + 7
    array = CyclicArray(member(0, 4), "a", (extent,), "f8", axes=(0,), blocks=(5,), grid=line)
    old, new = array.plan(RankMap.expand(4, 4)), array.plan(RankMap.expand(4, 6))
    layouts = CyclicLayout(extent, 4, 5), CyclicLayout(extent, 6, 5)
    kept = sum(BlockIntersection.of(layouts[0], p, layouts[1], p).count for p in range(4))
    assert (old.bytes_moved, new.bytes_moved) == (0, 8 * (extent - kept))


def test_what_is_missing_or_damaged_is_found(tmp_path: Path) -> None:
    written = save(KIND.start(3), tmp_path)
    array = KIND.entries(member(0, 2))[0]
    with pytest.raises(CheckpointError, match="array 'a': 7 cells are not there"):
        array.restore(ArrayReader(tmp_path, written[0][:2], 3), 0, 2)
    (tmp_path / "1-0").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is cut off"):
        array.restore(ArrayReader(tmp_path, written[0], 3), 0, 2)


def test_wrong_terms_are_refused() -> None:
    def array(**terms: Any) -> CyclicArray:
        given = {"axes": (0,), "blocks": (1,), "grid": line, **terms}
        shape, dtype = given.pop("shape", (5,)), given.pop("dtype", "f8")
        made = CyclicArray(member(0, 3), "a", shape, dtype, **given)
        made.start_with(None)
        return made

    for terms in ({"shape": (-1,)}, {"blocks": (0,)}, {"axes": (1,)}, {"dtype": object}):
        with pytest.raises(ValueError, match="array 'a'"):
            array(**terms)
    for grid in (lambda _: (2,), lambda _: (3, 1), lambda _: (-3,)):
        with pytest.raises(DistributionError, match=r"must be 1 numbers whose product is 3"):
            array(grid=grid)
    with pytest.raises(DistributionError, match="raised ZeroDivisionError"):
        array(grid=lambda _: 1 / 0)
    assert array().estimate(RankMap.expand(3, 4)) > 0


def test_the_checksum_tells_other_grids_with_as_many_cells() -> None:
    way = RankMap.identity(4)

    def checksum(grid: tuple[int, int]) -> tuple[int, Any]:
        terms = {"axes": (0, 1), "blocks": (1, 1), "grid": lambda _: grid}
        array = CyclicArray(member(0, 4), "a", (4, 4), "f8", **terms)  # type: ignore[arg-type]
        array.prepare(way, 0)
        plan = array.plan(way)
        return array.plan_checksum(plan), plan

    (one, plan), (other, same_plan) = checksum((1, 4)), checksum((4, 1))
    assert plan == same_plan
    assert one != other

"""Values that the program packs: any buffers, and errors of the program. No MPI."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.data.gather_metadata import gather_metadata, rebalance_entries
from pliant.appkit.kinds.custom import Custom
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.transfer_plan import RankMap
from rankkit import member, resize, run_ranks
from rankkit.kinds import CustomWords

WORDS = CustomWords("custom")


def test_pack_may_return_any_buffers() -> None:
    def halves(value: Any, size: int) -> list[Any]:
        return [np.array_split(value, size)[rank] for rank in range(size)]

    def together(parts: list[memoryview], *_: int) -> Any:
        return np.concatenate([np.frombuffer(part, "f8") for part in parts])

    def one(membership: Membership) -> list[Any]:
        return [Custom(membership, "array", halves, together)]

    parts = [one(member(0, 1))]
    parts[0][0].start_with(lambda *_: np.arange(5.0))
    parts, sent = resize(one, parts, RankMap.expand(1, 3))
    assert [entries[0].value.tolist() for entries in parts] == [[0.0, 1.0], [2.0, 3.0], [4.0]]
    assert sent == 3 * 8


def test_errors_of_pack_and_unpack_name_the_function_and_its_arguments() -> None:
    def one(bad_pack: Any, bad_unpack: Any = WORDS.unpack) -> Any:
        value = Custom(member(0, 1), "words", bad_pack, bad_unpack)
        value.start_with(WORDS.words)
        return value

    way = RankMap.identity(1)
    for bad, text in (
        (lambda *_: [], r"pack\(value, 1\) gave 0 buffers: it must be one for each of 1"),
        (lambda *_: ["text"], r"pack\(value, 1\) raised TypeError"),
        (lambda *_: 1 / 0, r"pack\(value, 1\) raised ZeroDivisionError"),
    ):
        with pytest.raises(DistributionError, match=text):
            one(bad).local_metadata(way, 0, ())

    def move_it(comm: Any) -> None:
        value = one(WORDS.pack, lambda *_: 1 / 0)
        known, _ = gather_metadata([value], way, comm, 1, "")
        value.prepare(way, 0, known[0])
        with pytest.raises(DistributionError, match=r"unpack\(parts, 0, 1\) raised ZeroDiv"):
            value.move(value.plan(way, known[0]), comm, 0)
        value.rollback()
        assert value.value == WORDS.words(0, 1)

    run_ranks(1, move_it)


class Packed:
    """A value whose packed buffers can be watched: the number of those that still exist."""

    def __init__(self) -> None:
        self.fails = False
        self._buffers: list[weakref.ref[Any]] = []

    def pack(self, value: int, size: int) -> list[Any]:
        buffers = [np.full(100, value, np.uint8) for _ in range(size)]
        self._buffers += map(weakref.ref, buffers)
        return buffers

    def unpack(self, parts: list[memoryview], *_: int) -> int:
        if self.fails:
            raise ValueError("no such value")
        return sum(part[0] for part in parts)

    def one(self, membership: Membership) -> list[Any]:
        return [Custom(membership, "packed", self.pack, self.unpack)]

    def started(self, size: int) -> list[list[Any]]:
        parts = [self.one(member(rank, size)) for rank in range(size)]
        for entries in parts:
            entries[0].start_with(lambda rank, _: rank + 1)
        return parts

    @property
    def in_memory(self) -> int:
        gc.collect()
        return sum(buffer() is not None for buffer in self._buffers)


@pytest.mark.parametrize("commit", [True, False])
def test_packed_buffers_are_released_after_a_resize(commit: bool) -> None:
    packed = Packed()
    parts, _ = resize(packed.one, packed.started(2), RankMap.expand(2, 3), commit=commit)
    assert [entries[0].value for entries in parts] == ([3, 3, 3] if commit else [1, 2])
    assert packed.in_memory == 0


def test_a_rebalance_that_fails_keeps_the_values_and_releases_the_buffers() -> None:
    packed = Packed()
    parts = packed.started(2)
    packed.fails = True

    def rebalance(comm: Any) -> None:
        with pytest.raises(DistributionError, match="no such value"):
            rebalance_entries(parts[comm.rank], comm)

    run_ranks(2, rebalance)
    assert [entries[0].value for entries in parts] == [1, 2]
    assert packed.in_memory == 0

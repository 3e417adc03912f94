"""Random streams: survivors go on, joining ranks begin ones that nobody had. No MPI."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.kinds.rng import RandomStreams, stream
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.appkit.storage.array_files import ArrayReader
from rankkit import Parts, load, member, resize, save

SEED = 20


def make(membership: Membership) -> list[Any]:
    return [RandomStreams(membership, "noise", SEED)]


def begin(size: int) -> Parts:
    parts = [make(member(rank, size)) for rank in range(size)]
    for (streams,) in parts:
        streams.start_with()
    return parts


class Model:
    """Which stream each rank has, and how many of its numbers are used, kept beside."""

    def __init__(self, size: int) -> None:
        self.parts = begin(size)
        self.numbers = list(range(size))
        self.given = size
        self.used: dict[int, int] = {}

    def draw(self) -> None:
        """Each rank draws some; they are those of its stream."""
        for rank, (streams,) in enumerate(self.parts):
            number, count = self.numbers[rank], 1 + rank % 3
            used = self.used.get(number, 0)
            expected = stream(SEED, number).random(used + count)[used:]
            assert streams.generator.random(count).tolist() == expected.tolist()
            self.used[number] = used + count

    def resize(self, way: RankMap, *, commit: bool = True) -> None:
        self.parts, sent = resize(make, self.parts, way, commit=commit)
        joining_ranks = [process for process in way.new if process not in way.old]
        assert sent == 8 * len(joining_ranks), "a number for each joining rank"
        if commit:
            fresh = dict(zip(joining_ranks, itertools.count(self.given), strict=False))
            was = dict(zip(way.old, self.numbers, strict=True))
            self.numbers = [{**was, **fresh}[process] for process in way.new]
            self.given += len(joining_ranks)


@given(
    size=st.integers(1, 6),
    steps=st.lists(st.one_of(st.integers(1, 4), st.sets(st.integers(0, 5))), max_size=5),
)
def test_random_streams_are_right_after_any_resizes(size: int, steps: list[Any]) -> None:
    model = Model(size)
    model.draw()
    for step in steps:
        now = len(model.parts)
        if isinstance(step, int):
            model.resize(RankMap.expand(now, now + step), commit=False)
            model.resize(RankMap.expand(now, now + step))
        else:
            leaving = sorted(rank for rank in step if rank < now)[: now - 1]
            model.resize(RankMap.shrink(now, leaving))
        model.draw()


def test_it_is_the_same_object_as_long_as_the_process_stays() -> None:
    parts = begin(2)
    before = parts[1][0].generator
    parts, _ = resize(make, parts, RankMap.shrink(2, [0]))
    assert parts[0][0].generator is before


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 3), (2, 5)])
def test_saved_at_a_size_and_restored_at_another(tmp_path: Path, before: int, after: int) -> None:
    model = Model(before)
    model.resize(RankMap.expand(before, before + 1))
    model.resize(RankMap.shrink(before + 1, [0]))
    model.draw()
    written = save(model.parts, tmp_path)
    model.parts = load(make, tmp_path, written, before, after)
    fresh = range(model.given, model.given + after)
    model.numbers = [*model.numbers, *fresh][:after]
    model.given += max(0, after - before)
    model.draw()
    model.resize(RankMap.expand(after, after + 2))
    model.draw()


def test_wrong_seeds_and_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seed -1 is negative"):
        RandomStreams(member(0, 1), "noise", -1)
    with pytest.raises(CheckpointError, match="'noise' is not in the checkpoint"):
        make(member(0, 1))[0].restore(ArrayReader(tmp_path, [], 1), 0, 1)

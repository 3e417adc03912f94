"""Values that the program packs: all that is packed for a rank comes to it, in order. No MPI."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.appkit.data.metadata import survey
from pliant.appkit.errors import DistributionError
from pliant.appkit.kinds.custom import Custom
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution import ranges
from pliant.appkit.redistribution.plan import Crossing
from rankkit import Parts, crossing, load, member, resize, run_ranks, save

PAIRS = list(itertools.product(range(1, 18), repeat=2))

#: Words by number: each lives on the rank that its number says.
Words = dict[int, str]


def pack(value: Words, size: int) -> list[bytes]:
    parts: list[Words] = [{} for _ in range(size)]
    for number, word in value.items():
        parts[number % size][number] = word
    return [json.dumps(part).encode() if part else b"" for part in parts]


def unpack(parts: list[memoryview], rank: int, size: int) -> Words:
    value: Words = {}
    for part in parts:
        value.update({int(k): v for k, v in json.loads(bytes(part) or b"{}").items()})
    assert all(number % size == rank for number in value)
    return value


def make(membership: Membership) -> list[Any]:
    return [Custom(membership, "words", pack, unpack)]


def words(rank: int, size: int) -> Words:
    return {number: f"word {number}" for number in range(40) if number % size == rank}


def begin(size: int) -> Parts:
    parts = [make(member(rank, size)) for rank in range(size)]
    for (value,) in parts:
        value.start_with(words)
    return parts


def check(parts: Parts) -> None:
    for rank, (value,) in enumerate(parts):
        assert value.value == words(rank, len(parts))


def sent_bytes(way: Crossing) -> int:
    """What the program packs for other processes."""
    total = 0
    for rank, source in enumerate(way.old):
        parts = pack(words(rank, len(way.old)), len(way.new))
        total += sum(len(p) for p, t in zip(parts, way.new, strict=True) if t != source)
    return total


def test_all_pairs_of_sizes() -> None:
    for before, after in PAIRS:
        way = crossing(before, after, first=bool((before + after) % 2))
        parts, sent = resize(make, begin(before), way)
        check(parts)
        assert sent == sent_bytes(way)


@given(size=st.integers(2, 9), leaving=st.sets(st.integers(0, 8)), chunk=st.integers(1, 40))
def test_any_ranks_may_leave(size: int, leaving: set[int], chunk: int) -> None:
    way = Crossing.shrinkage(size, sorted(r for r in leaving if r < size)[: size - 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "CHUNK_BYTES", chunk)
        parts, sent = resize(make, begin(size), way)
    check(parts)
    assert sent == sent_bytes(way)


def test_saved_at_a_size_and_restored_at_another(tmp_path: Path) -> None:
    for before in (1, 3, 5):
        folder = tmp_path / str(before)
        folder.mkdir()
        written = save(begin(before), folder)
        for after in (1, 2, 7):
            check(load(make, folder, written, before, after))


def test_a_rollback_leaves_all_as_it_was() -> None:
    parts, _ = resize(make, begin(3), Crossing.growth(3, 5), commit=False)
    check(parts)


def test_anything_with_bytes_will_do() -> None:
    def halves(value: Any, size: int) -> list[Any]:
        return [np.array_split(value, size)[rank] for rank in range(size)]

    def together(parts: list[memoryview], *_: int) -> Any:
        return np.concatenate([np.frombuffer(part, "f8") for part in parts])

    def one(membership: Membership) -> list[Any]:
        return [Custom(membership, "array", halves, together)]

    parts = [one(member(0, 1))]
    parts[0][0].start_with(lambda *_: np.arange(5.0))
    parts, sent = resize(one, parts, Crossing.growth(1, 3))
    assert [entries[0].value.tolist() for entries in parts] == [[0.0, 1.0], [2.0, 3.0], [4.0]]
    assert sent == 3 * 8


def test_what_the_program_does_wrong_is_its_name() -> None:
    def one(bad_pack: Any, bad_unpack: Any = unpack) -> Any:
        value = Custom(member(0, 1), "words", bad_pack, bad_unpack)
        value.start_with(words)
        return value

    way = Crossing.among(1)
    for bad, text in (
        (lambda *_: [], r"pack\(value, 1\) gave 0 buffers: it must be one for each of 1"),
        (lambda *_: ["text"], r"pack\(value, 1\) raised TypeError"),
        (lambda *_: 1 / 0, r"pack\(value, 1\) raised ZeroDivisionError"),
    ):
        with pytest.raises(DistributionError, match=text):
            one(bad).census(way, 0, ())

    def move_it(comm: Any) -> None:
        value = one(pack, lambda *_: 1 / 0)
        known, _ = survey([value], way, comm, 1, "")
        value.prepare(way, 0, known[0])
        with pytest.raises(DistributionError, match=r"unpack\(parts, 0, 1\) raised ZeroDiv"):
            value.move(value.plan(way, known[0]), comm, 0)
        value.rollback()
        assert value.value == words(0, 1)

    run_ranks(1, move_it)

"""Values that the program packs: any buffers, and errors of the program. No MPI."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pliant.appkit.data.metadata import gather_metadata
from pliant.appkit.errors import DistributionError
from pliant.appkit.kinds.custom import Custom
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.plan import RankMap
from rankkit import member, resize, run_ranks
from rankkit.kinds import CustomWords

WORDS = CustomWords("custom")


def test_anything_with_bytes_will_do() -> None:
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


def test_what_the_program_does_wrong_is_its_name() -> None:
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

"""Values that the program packs, and random generators."""

from __future__ import annotations

import json
from typing import Any

from pliant.appkit.kinds.custom import Custom
from pliant.appkit.kinds.rng import RandomStreams
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.transfer_plan import RankMap
from rankkit.kinds.base import Kind, Numbers
from rankkit.resize import Parts

#: Words by number: each lives on the rank that its number says.
Words = dict[int, str]


class CustomWords(Kind):
    """Words that the program packs as JSON."""

    def pack(self, value: Words, size: int) -> list[bytes]:
        """Pack the words of one rank for ``size`` ranks; empty where there is none."""
        parts: list[Words] = [{} for _ in range(size)]
        for number, word in value.items():
            parts[number % size][number] = word
        return [json.dumps(part).encode() if part else b"" for part in parts]

    def unpack(self, parts: list[memoryview], rank: int, size: int) -> Words:
        """Put the words of one rank together."""
        value: Words = {}
        for part in parts:
            value.update({int(k): v for k, v in json.loads(bytes(part) or b"{}").items()})
        assert all(number % size == rank for number in value)
        return value

    def words(self, rank: int, size: int) -> Words:
        """Return the words of one rank."""
        return {number: f"word {number}" for number in range(40) if number % size == rank}

    def entries(self, membership: Membership) -> list[Any]:
        return [Custom(membership, "words", self.pack, self.unpack)]

    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        entries[0].start_with(self.words)

    def owners(self, parts: Parts) -> Numbers:
        for rank, (value,) in enumerate(parts):
            assert value.value == self.words(rank, len(parts))
        return None

    def bytes_sent(self, before: Numbers, after: Numbers, way: RankMap) -> int:
        total = 0
        for rank, source in enumerate(way.old):
            parts = self.pack(self.words(rank, len(way.old)), len(way.new))
            total += sum(len(p) for p, t in zip(parts, way.new, strict=True) if t != source)
        return total


class Streams(Kind):
    """Random generators, of which nothing is drawn."""

    def entries(self, membership: Membership) -> list[Any]:
        return [RandomStreams(membership, "noise", 7)]

    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        entries[0].start_with()

    def owners(self, parts: Parts) -> Numbers:
        """Assert that no two ranks have the same stream."""
        states = {str(streams.generator.bit_generator.state) for (streams,) in parts}
        assert len(states) == len(parts)
        return None

    def bytes_sent(self, before: Numbers, after: Numbers, way: RankMap) -> int:
        return 8 * len(set(way.new) - set(way.old))

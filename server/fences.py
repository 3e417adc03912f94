"""The relay for PMI barriers of worlds that span nodes: everybody's pairs to everybody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pliant.core.ids import NodeName


@dataclass(slots=True)
class _Barrier:
    arrived: set[NodeName] = field(default_factory=set)
    pairs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Merged:
    """A barrier that is complete, and whom to tell."""

    world: str
    sequence: int
    pairs: Mapping[str, str]
    tell: frozenset[NodeName]
    #: Whether it was complete before: then it is stored already.
    again: bool = False


class Fences:
    """Merges the pairs of a world's nodes. A node that asks again is answered again."""

    def __init__(self, done: Mapping[tuple[str, int], Mapping[str, str]] | None = None) -> None:
        self._done: dict[tuple[str, int], Mapping[str, str]] = dict(done or {})
        self._open: dict[tuple[str, int], _Barrier] = {}

    def arrive(
        self,
        world: str,
        nodes: frozenset[NodeName],
        node: NodeName,
        sequence: int,
        pairs: Mapping[str, str],
    ) -> Merged | None:
        """Note that a node reached a barrier; return it when all nodes have."""
        key = (world, sequence)
        if key in self._done:
            return Merged(world, sequence, self._done[key], frozenset({node}), again=True)
        barrier = self._open.setdefault(key, _Barrier())
        barrier.arrived.add(node)
        barrier.pairs.update(pairs)
        if not nodes <= barrier.arrived:
            return None
        del self._open[key]
        self._done[key] = barrier.pairs
        return Merged(world, sequence, barrier.pairs, nodes)

    def forget(self, worlds: Iterable[str]) -> None:
        """Drop the barriers of worlds that have ended."""
        gone = set(worlds)
        self._done = {key: pairs for key, pairs in self._done.items() if key[0] not in gone}
        self._open = {key: barrier for key, barrier in self._open.items() if key[0] not in gone}

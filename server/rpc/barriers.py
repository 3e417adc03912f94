"""The relay for PMI barriers of worlds that span nodes: everybody's pairs to everybody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pliant.core.values.ids import NodeName


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


class BarrierTable:
    """Merges the pairs of a world's nodes. A node that asks again is answered again."""

    def __init__(self, done: Mapping[tuple[str, int], Mapping[str, str]] | None = None) -> None:
        self._done: dict[str, dict[int, Mapping[str, str]]] = {}
        self._open: dict[str, dict[int, _Barrier]] = {}
        for (world, sequence), pairs in (done or {}).items():
            self._done.setdefault(world, {})[sequence] = pairs

    def arrive(
        self,
        world: str,
        nodes: frozenset[NodeName],
        node: NodeName,
        sequence: int,
        pairs: Mapping[str, str],
    ) -> Merged | None:
        """Note that a node reached a barrier; return it when all nodes have."""
        done, waiting = self._done.setdefault(world, {}), self._open.setdefault(world, {})
        if sequence in done:
            return Merged(world, sequence, done[sequence], frozenset({node}), again=True)
        barrier = waiting.setdefault(sequence, _Barrier())
        barrier.arrived.add(node)
        barrier.pairs.update(pairs)
        if not nodes <= barrier.arrived:
            return None
        del waiting[sequence]
        # Whoever is here has the answers to all barriers before.
        for passed in [number for number in done if number < sequence]:
            del done[passed]
        done[sequence] = barrier.pairs
        return Merged(world, sequence, barrier.pairs, nodes)

    def forget(self, worlds: Iterable[str]) -> None:
        """Drop the barriers of worlds that have ended."""
        for world in worlds:
            self._done.pop(world, None)
            self._open.pop(world, None)

"""Memory and devices left on each node, and the processors that a job can use, as a plan is made.

What a job needs is the same for each of its processes. So if a job may have a set of processors,
it may have each part of the set, too. The functions here return sets with this property.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pliant.core.model.views_and_plans import NodeView
from pliant.core.values.ids import NodeName
from pliant.core.values.node_needs import Amounts, NodeNeeds
from pliant.core.values.processors import NONE, ProcessorMap, count, lowest

#: Processors that another job will give up, and what that job needs.
Coming = Sequence[tuple[ProcessorMap, NodeNeeds | None]]


class FreeCapacity:
    """The memory and devices that are left on each node while a plan is made.

    Args:
        nodes: the nodes that may get new work, in order of their processors.
        left: the unused amounts by node. A node that is not named is unused.
    """

    __slots__ = ("_accepted", "_firsts", "_left", "_nodes", "_unasked")

    def __init__(self, nodes: Sequence[NodeView], left: Mapping[NodeName, Amounts]) -> None:
        self._nodes = nodes
        self._left: dict[NodeName, Amounts] = dict(left)
        #: Caches, shared by copies. The first processor of each node is found when it is needed
        #: for the first time, because this object is often made and then not asked.
        self._firsts: list[int] = []
        self._accepted: dict[NodeNeeds, ProcessorMap] = {}
        self._unasked: dict[NodeNeeds | None, ProcessorMap] = {}

    def copy(self) -> FreeCapacity:
        """Return a copy that can be changed independently of this object."""
        made = FreeCapacity.__new__(FreeCapacity)
        made._nodes, made._firsts = self._nodes, self._firsts
        made._accepted, made._unasked = self._accepted, self._unasked
        made._left = dict(self._left)
        return made

    def left(self, node: NodeView) -> Amounts:
        """Return the unused memory and devices of a node."""
        found = self._left.get(node.name)
        return dict(node.amounts) if found is None else found

    def amounts_left(self) -> dict[NodeName, Amounts]:
        """Return the unused memory and devices of each node, without those of nodes that are idle.

        The result has the form of ``View.amounts_left``.
        """
        return dict(self._left)

    def parts(self, processors: ProcessorMap) -> Iterator[tuple[NodeView, ProcessorMap]]:
        """Yield each node that has at least one of these processors, with its part of them."""
        if processors and not self._firsts:
            self._firsts += [_first(node.processors) for node in self._nodes]
        while processors:
            place = bisect_right(self._firsts, _first(processors))
            if not place:
                return
            node = self._nodes[place - 1]
            part = processors & node.processors
            if part:
                yield node, part
            else:  # processors of unusable nodes, up to the next usable one
                end = self._firsts[place] if place < len(self._firsts) else processors.bit_length()
                part = processors & ((1 << end) - 1)
            processors &= ~part

    def accepted(self, needs: NodeNeeds | None) -> ProcessorMap:
        """Return the processors of all nodes that a job accepts by name and properties."""
        if needs is None:
            return ~NONE
        found = self._accepted.get(needs)
        if found is None:
            found = NONE
            for node in self._nodes:
                if node.suits(needs):
                    found |= node.processors
            self._accepted[needs] = found
        return found

    def whole_nodes(self, processors: ProcessorMap) -> ProcessorMap:
        """Return all processors of the nodes that have at least one of these."""
        found = NONE
        for node, _ in self.parts(processors):
            found |= node.processors
        return found

    def possible(self, needs: NodeNeeds | None) -> ProcessorMap:
        """Return the processors of nodes that could run a process of a job if they were idle."""
        if needs is None or not needs.amounts:
            return self.accepted(needs)
        found = NONE
        for node in self._nodes:
            if node.processors & self.accepted(needs) and needs.processes(dict(node.amounts)):
                found |= node.processors
        return found

    def fitting(self, needs: NodeNeeds | None, free: ProcessorMap) -> ProcessorMap:
        """Return free processors that a job can use together: as many as its needs allow.

        The needs are memory and devices for each process.
        """
        return self.fitting_both(needs, free, ())[0]

    def fitting_both(
        self, needs: NodeNeeds | None, free: ProcessorMap, coming: Coming
    ) -> tuple[ProcessorMap, ProcessorMap]:
        """Return the processors that memory and devices allow a job to use together, in two sets.

        Args:
            needs: what each process of the job needs; None for nothing.
            free: the processors that are free now.
            coming: processors that other jobs (donors) will give up, with the needs of each donor.

        Returns:
            The usable ones among the free processors, and among the coming ones.
        """
        accepted = self.accepted(needs)
        free &= accepted
        if needs is None or not needs.amounts:
            return free, _union(coming) & accepted
        found, later = NONE, NONE
        for node, part in self.parts(free | _union(coming) & accepted):
            left = self.left(node)
            idle = part & free
            idle = lowest(idle, min(count(idle), needs.processes(left)))
            found |= idle
            left = _without(left, needs, count(idle))
            for given, donor in coming:
                more = _beyond(needs, donor)
                piece = given & part & ~free
                piece = lowest(piece, min(count(piece), more.processes(left)))
                later |= piece
                left = _without(left, more, count(piece))
        return found, later

    def number_on(self, needs: NodeNeeds | None, node: NodeView, free: ProcessorMap) -> int:
        """Return how many of a node's free processors a job can have."""
        number = count(free & node.processors & self.accepted(needs))
        if needs is None or not number:
            return number
        return min(number, needs.processes(self.left(node)))

    def take(self, needs: NodeNeeds | None, processors: ProcessorMap, coming: Coming = ()) -> None:
        """Subtract the memory and devices that a job uses on these processors.

        ``coming`` are the processors among them that other jobs (donors) are still to give up, with
        the needs of each donor. What a donor frees there is used first, and only the rest is
        subtracted.
        """
        if needs is None or not needs.amounts:
            return
        given = _union(coming)
        for node, part in self.parts(processors):
            left = _without(self.left(node), needs, count(part & ~given))
            for pieces, donor in coming:
                left = _without(left, _beyond(needs, donor), count(pieces & part))
            self._left[node.name] = left

    def give(self, needs: NodeNeeds | None, processors: ProcessorMap) -> None:
        """Add the memory and devices of a job on processors that it has given up."""
        if needs is None or not needs.amounts:
            return
        for node, part in self.parts(processors):
            self._left[node.name] = _without(self.left(node), needs, -count(part))

    def reduce_to(self, other: FreeCapacity) -> None:
        """Limit what is left of memory and devices on each node to what is left in ``other``."""
        for name, theirs in other._left.items():
            mine = self._left.get(name)
            self._left[name] = theirs if mine is None else _smaller(mine, theirs)

    def overdrawn(
        self, needs: NodeNeeds | None, processors: ProcessorMap
    ) -> tuple[NodeView, str] | None:
        """Return a node with less than 0 left of a resource that a job needs, and the resource.

        None if no node of these processors has less than 0 left.
        """
        if needs is None or not needs.amounts:
            return None
        for node, _ in self.parts(processors):
            left = self.left(node)
            for name, _ in needs.amounts:
                if left.get(name, 0) < 0:
                    return node, name
        return None

    def plain_first(
        self, needs: NodeNeeds | None, processors: ProcessorMap, number: int
    ) -> ProcessorMap:
        """Return ``number`` of the processors, the lowest first.

        Processors of nodes with generic resources that the job does not need are used last.
        """
        special = processors & self._with_unneeded(needs)
        plain = processors & ~special
        if count(plain) >= number:
            return lowest(plain, number)
        return plain | lowest(special, number - count(plain))

    def _with_unneeded(self, needs: NodeNeeds | None) -> ProcessorMap:
        """Return the processors of nodes with generic resources that the job does not need."""
        found = self._unasked.get(needs)
        if found is None:
            asked = needs.gres if needs is not None else {}
            found = NONE
            for node in self._nodes:
                if any(name not in asked for name in node.gres):
                    found |= node.processors
            self._unasked[needs] = found
        return found


def _first(processors: ProcessorMap) -> int:
    return (processors & -processors).bit_length() - 1


def _union(coming: Iterable[tuple[ProcessorMap, NodeNeeds | None]]) -> ProcessorMap:
    result = NONE
    for processors, _ in coming:
        result |= processors
    return result


def _smaller(one: Amounts, other: Amounts) -> Amounts:
    return {name: min(amount, other.get(name, 0)) for name, amount in one.items()}


def _without(left: Amounts, needs: NodeNeeds, processes: int) -> Amounts:
    """Return the amounts that remain after ``processes`` processes got what they need."""
    if not processes or not needs.amounts:
        return left
    rest = dict(left)
    for name, amount in needs.amounts:
        rest[name] = rest.get(name, 0) - amount * processes
    return rest


def _beyond(needs: NodeNeeds, donor: NodeNeeds | None) -> NodeNeeds:
    """Return what a process needs in addition to what a process of a shrinking job frees."""
    if donor is None or not donor.amounts:
        return NodeNeeds(needs.amounts)
    given = dict(donor.amounts)
    more = ((name, amount - given.get(name, 0)) for name, amount in needs.amounts)
    return NodeNeeds(tuple((name, amount) for name, amount in more if amount > 0))


def most_processes(nodes: Iterable[NodeView], needs: NodeNeeds) -> int:
    """Return how many processes of a job fit on these nodes if no other job is there."""
    return sum(
        min(count(node.processors), needs.processes(dict(node.amounts)))
        for node in nodes
        if node.suits(needs)
    )

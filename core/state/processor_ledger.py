"""Who may have which processors: sums over nodes and jobs, kept up to date instead of added up.

Nothing here decides anything. ``core.invariants`` compares every sum with its parts.
"""

from bisect import bisect_right

from pliant.core.model.nodes import Node, NodeState
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import NONE, ProcessorMap, count


class Ledger:
    """The nodes by processor, and the maps that they and the jobs amount to."""

    __slots__ = (
        "_firsts",
        "_free",
        "_nodes",
        "_slots",
        "capacity",
        "draining",
        "occupied_by_jobs",
        "orphaned",
        "reserved",
        "spares",
        "suspect",
        "usable",
    )

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._firsts: list[int] = []
        #: Processors of all nodes together.
        self._slots = 0
        #: The spare nodes; a dictionary for its order.
        self.spares: dict[NodeName, Node] = {}
        #: Of nodes where new work may start.
        self.usable = NONE
        #: Of nodes that are silent, but not lost.
        self.suspect = NONE
        #: Of nodes that are kept free of new work and still have some.
        self.draining = NONE
        #: What jobs hold; no two of them the same.
        self.occupied_by_jobs = NONE
        #: With processes of jobs whose books are closed.
        self.orphaned = NONE
        #: Promised to waiting jobs; no two of them the same.
        self.reserved = NONE
        #: How many processors are usable, or held elsewhere; the same with silent nodes, which
        #: may be back at once.
        self.capacity = (0, 0)
        #: None: to be made anew.
        self._free: ProcessorMap | None = NONE

    def _busy_changed(self, processors: ProcessorMap) -> None:
        self._free = None
        if processors & ~self.usable:
            self._count()

    @property
    def all(self) -> int:
        """How many processors there are, also on nodes that an operator keeps work off.

        Spare nodes that stand in for none do not count.
        """
        known = self.occupied_by_jobs | self.orphaned
        for node in self._nodes:
            if node.state is not NodeState.LOST and (not node.spare or node.stands_in):
                known |= node.processors
        return count(known)

    def _count(self) -> None:
        known = self.usable | self.occupied_by_jobs | self.orphaned
        self.capacity = (count(known), count(known | self.suspect))

    # ---------------------------------------------------------------- changes

    def put(self, node: Node) -> None:
        """A node is new, or may now be used otherwise."""
        place = bisect_right(self._firsts, node.first)
        if not place or self._firsts[place - 1] != node.first:
            self._firsts.insert(place, node.first)
            self._nodes.insert(place, node)
            self._slots += node.slots
        if node.spare:
            self.spares[node.name] = node
        else:
            self.spares.pop(node.name, None)
        mine = node.processors
        self.usable = self.usable | mine if node.usable else self.usable & ~mine
        silent = node.state is NodeState.SUSPECT and node.wanted
        self.suspect = self.suspect | mine if silent else self.suspect & ~mine
        draining = node.state is NodeState.DRAINING
        self.draining = self.draining | mine if draining else self.draining & ~mine
        self._free = None
        self._count()

    def drop(self, node: Node) -> None:
        """A node is gone for good; no job has anything on it."""
        place = self._firsts.index(node.first)
        del self._firsts[place], self._nodes[place]
        self._slots -= node.slots
        self.spares.pop(node.name, None)
        mine = ~node.processors
        self.usable &= mine
        self.suspect &= mine
        self.draining &= mine
        self.orphaned &= mine
        self._free = None
        self._count()

    def occupy(self, processors: ProcessorMap) -> None:
        """A job has these, which no other job has."""
        self.occupied_by_jobs |= processors
        self._busy_changed(processors)

    def give_back(self, processors: ProcessorMap) -> None:
        """The job that had these has them no more."""
        self.occupied_by_jobs &= ~processors
        self._busy_changed(processors)

    def orphan(self, processors: ProcessorMap) -> None:
        """Processes that no job knows are on these."""
        self.orphaned |= processors
        self._busy_changed(processors)

    def clear(self, processors: ProcessorMap) -> None:
        """There are no processes that no job knows on these."""
        self.orphaned &= ~processors
        self._busy_changed(processors)

    def reserve(self, processors: ProcessorMap) -> None:
        """These are promised to a waiting job."""
        self.reserved |= processors
        self._free = None

    def unreserve(self, processors: ProcessorMap) -> None:
        """These are promised no more."""
        self.reserved &= ~processors
        self._free = None

    # ---------------------------------------------------------------- sums

    @property
    def occupied(self) -> ProcessorMap:
        """Where somebody's processes may be."""
        return self.occupied_by_jobs | self.orphaned

    @property
    def free(self) -> ProcessorMap:
        """What may be given away now."""
        if self._free is None:
            self._free = self.usable & ~(self.occupied_by_jobs | self.orphaned | self.reserved)
        return self._free

    # ---------------------------------------------------------------- nodes

    @property
    def nodes(self) -> list[Node]:
        """All nodes by their processors; read only."""
        return self._nodes

    def room_for(self, slots: int) -> int:
        """Return the first gap in the processor map that is large enough, or its end."""
        last = self._nodes[-1] if self._nodes else None
        end = last.first + last.slots if last is not None else 0
        if end == self._slots:
            return end  # there is no gap: registering 1000 nodes does not look at each of them
        first = 0
        for node in self._nodes:
            if node.first - first >= slots:
                break
            first = node.first + node.slots
        return first

    def node_of(self, processor: int) -> Node | None:
        """The node that a processor is on."""
        place = bisect_right(self._firsts, processor)
        node = self._nodes[place - 1] if place else None
        return node if node is not None and processor < node.first + node.slots else None

    def nodes_of(self, processors: ProcessorMap) -> list[Node]:
        """The nodes that have at least one of these processors."""
        found: list[Node] = []
        base = 0
        while processors:
            first = base + (processors & -processors).bit_length() - 1
            node = self.node_of(first)
            if node is None:
                raise KeyError(f"processor {first} belongs to no node")
            found.append(node)
            processors >>= node.first + node.slots - base
            base = node.first + node.slots
        return found

"""Sums of processors over nodes and jobs, updated with each change instead of added up again.

The ledger does not check what it counts: ``handlers/planning.py`` refuses plans with processors
that are not free. ``state/invariants.py`` compares each sum with its parts.
"""

from bisect import bisect_right

from pliant.core.model.nodes import Node, NodeState
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import NONE, ProcessorMap, count


class ProcessorLedger:
    """All nodes in the order of their processors, and the free, used and reserved processors."""

    __slots__ = (
        "_all_withheld",
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
        "withheld",
    )

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._firsts: list[int] = []
        #: The number of processors of all nodes.
        self._slots = 0
        #: The spare nodes. A dictionary, because the order must be deterministic.
        self.spares: dict[NodeName, Node] = {}
        #: Processors of nodes that may get new work.
        self.usable = NONE
        #: Processors of nodes whose heartbeats are overdue.
        self.suspect = NONE
        #: Processors of nodes that get no new work and still have jobs.
        self.draining = NONE
        #: Processors that jobs occupy, each by one job.
        self.occupied_by_jobs = NONE
        #: Processors with processes of jobs that have ended.
        self.orphaned = NONE
        #: Processors that are reserved, each for one job.
        self.reserved = NONE
        #: Processors on which ranks of ending jobs have exited, while other ranks of them run. They
        #: become free with the others of the job, or after a time. Not kept over a restart.
        self.withheld: dict[JobId, ProcessorMap] = {}
        self._all_withheld = NONE
        #: The number of processors that are usable or occupied; and the same with those of
        #: suspected nodes, which may recover.
        self.capacity = (0, 0)
        #: The free processors. None if they have to be calculated again.
        self._free: ProcessorMap | None = NONE

    def _busy_changed(self, processors: ProcessorMap) -> None:
        self._free = None
        if processors & ~self.usable:
            self._count()

    @property
    def all(self) -> int:
        """Return the number of processors of all nodes, drained ones included.

        Idle spare nodes do not count, and of lost nodes only processors that are still occupied.
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
        """Add a node, or update the sums after its state has changed."""
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
        """Remove a node for good. No job may have processors on it."""
        place = self._firsts.index(node.first)
        del self._firsts[place], self._nodes[place]
        self._slots -= node.slots
        self.spares.pop(node.name, None)
        mine = ~node.processors
        self.usable &= mine
        self.suspect &= mine
        self.draining &= mine
        self.orphaned &= mine
        self._keep_withheld(mine)
        self._free = None
        self._count()

    def occupy(self, processors: ProcessorMap) -> None:
        """Count these processors as occupied by a job."""
        self.occupied_by_jobs |= processors
        self._keep_withheld(~processors)
        self._busy_changed(processors)

    def give_back(self, processors: ProcessorMap) -> None:
        """Count these processors as no longer occupied by a job."""
        self.occupied_by_jobs &= ~processors
        self._busy_changed(processors)

    def withhold(self, job: JobId, processors: ProcessorMap) -> None:
        """Keep processors that an ending job has given back from becoming free.

        They become free with `stop_withholding`.
        """
        self.withheld[job] = self.withheld.get(job, NONE) | processors
        self._all_withheld |= processors
        self._free = None

    def stop_withholding(self, job: JobId) -> bool:
        """Stop keeping the processors that an ending job has given back, so that they become free.

        Return whether there were any.
        """
        withheld = self.withheld.pop(job, NONE)
        self._all_withheld &= ~withheld
        self._free = None
        return withheld != NONE

    def _keep_withheld(self, processors: ProcessorMap) -> None:
        """Stop withholding all processors except these, because the others are in use or gone."""
        if not self._all_withheld & ~processors:
            return
        self._all_withheld &= processors
        for job, withheld in list(self.withheld.items()):
            if withheld & processors:
                self.withheld[job] = withheld & processors
            else:
                del self.withheld[job]

    def orphan(self, processors: ProcessorMap) -> None:
        """Mark processors on which processes run that belong to no known job."""
        self.orphaned |= processors
        self._busy_changed(processors)

    def clear(self, processors: ProcessorMap) -> None:
        """Remove the mark of `orphan` from processors, because the processes there have ended."""
        self.orphaned &= ~processors
        self._busy_changed(processors)

    def reserve(self, processors: ProcessorMap) -> None:
        """Count these processors as reserved for a job."""
        self.reserved |= processors
        self._free = None

    def unreserve(self, processors: ProcessorMap) -> None:
        """Count these processors as no longer reserved."""
        self.reserved &= ~processors
        self._free = None

    # ---------------------------------------------------------------- sums

    @property
    def occupied(self) -> ProcessorMap:
        """Return the processors on which processes may be alive."""
        return self.occupied_by_jobs | self.orphaned

    @property
    def free(self) -> ProcessorMap:
        """Return the processors that may be allocated now."""
        if self._free is None:
            taken = self.occupied_by_jobs | self.orphaned | self.reserved | self._all_withheld
            self._free = self.usable & ~taken
        return self._free

    def held_by(self, job: JobId, occupied: ProcessorMap) -> ProcessorMap:
        """Return the processors ``occupied`` by a job, and those withheld until the job has ended.

        Withheld processors that are reserved or unusable are left out.
        """
        withheld = self.withheld.get(job) if self.withheld else None
        if withheld is None:
            return occupied
        return occupied | withheld & self.usable & ~self.reserved

    # ---------------------------------------------------------------- nodes

    @property
    def nodes(self) -> list[Node]:
        """Return all nodes in the order of their processors. Callers must not change the list."""
        return self._nodes

    def first_free_block(self, slots: int) -> int:
        """Return the first index at which ``slots`` consecutive numbers belong to no node."""
        last = self._nodes[-1] if self._nodes else None
        end = last.first + last.slots if last is not None else 0
        if end == self._slots:
            return end  # without a gap, registering 1000 nodes must not search all of them
        first = 0
        for node in self._nodes:
            if node.first - first >= slots:
                break
            first = node.first + node.slots
        return first

    def node_of(self, processor: int) -> Node | None:
        """Return the node of a processor; None if it belongs to no node."""
        place = bisect_right(self._firsts, processor)
        node = self._nodes[place - 1] if place else None
        return node if node is not None and processor < node.first + node.slots else None

    def nodes_of(self, processors: ProcessorMap) -> list[Node]:
        """Return the nodes that have at least one of these processors.

        Raises:
            KeyError: one of them belongs to no node.
        """
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

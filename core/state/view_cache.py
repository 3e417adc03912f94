"""A cache of the view that strategies get: only the parts of changed jobs are made again."""

from bisect import bisect_left
from typing import Any, Generic, TypeVar

from pliant.core.model.nodes import Node
from pliant.core.model.views_and_plans import NodeView, PromisedJob, RunningJob, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.processors import ProcessorMap

V = TypeVar("V")


class ViewRow(Generic[V]):
    """All jobs of one kind (waiting, promised or running) as strategies see them.

    They are sorted by time and job number, and kept as a list. The tuple for the strategy's view is
    made when it is read.
    """

    __slots__ = ("_key_of", "_keys", "_tuple", "_values")

    def __init__(self) -> None:
        self._keys: list[tuple[float, JobId]] = []
        self._values: list[V] = []
        self._key_of: dict[JobId, tuple[float, JobId]] = {}
        self._tuple: tuple[V, ...] | None = ()

    def put(self, time: float, job: JobId, value: V) -> None:
        """Add a job to the row, or replace its value.

        Args:
            time: the time by which jobs are ordered, in seconds since the epoch.
            job: the number of the job.
            value: the job as strategies see it.
        """
        key, old = (time, job), self._key_of.get(job)
        if old is not None and old != key:
            self.drop(job)
            old = None
        place = bisect_left(self._keys, key)
        if old is None:
            self._keys.insert(place, key)
            self._values.insert(place, value)
            self._key_of[job] = key
        else:
            self._values[place] = value
        self._tuple = None

    def drop(self, job: JobId) -> None:
        """Remove the value of a job, if it has one."""
        key = self._key_of.pop(job, None)
        if key is not None:
            place = bisect_left(self._keys, key)
            del self._keys[place], self._values[place]
            self._tuple = None

    @property
    def values(self) -> tuple[V, ...]:
        """Return the jobs as strategies see them, ordered by time and job number."""
        if self._tuple is None:
            self._tuple = tuple(self._values)
        return self._tuple


def node_view(node: Node) -> NodeView:
    """Return a node as strategies see it."""
    return NodeView(
        node.name,
        node.cluster,
        node.processors,
        frozenset(node.properties),
        node.amounts,
        node.shares_checkpoints is True,
    )


class UsableNodes:
    """The usable nodes in the order of their processors, as a tuple that is made when needed."""

    __slots__ = ("_firsts", "_tuple", "_values", "_with_gres", "version")

    def __init__(self) -> None:
        #: Incremented with each change.
        self.version = 0
        self._firsts: list[int] = []
        self._values: list[NodeView] = []
        self._tuple: tuple[NodeView, ...] | None = ()
        #: How many of the nodes have generic resources. It is updated with each change, because
        #: a registration must not look at all other nodes.
        self._with_gres = 0

    def put(self, node: Node) -> None:
        """Add or update a node; remove it if it is not usable any more."""
        if not node.usable:
            self.drop(node)
            return
        value = node_view(node)
        self.version += 1
        place = bisect_left(self._firsts, node.first)
        if place < len(self._firsts) and self._firsts[place] == node.first:
            self._with_gres -= bool(self._values[place].gres)
            self._values[place] = value
        else:
            self._firsts.insert(place, node.first)
            self._values.insert(place, value)
        self._with_gres += bool(value.gres)
        self._tuple = None

    def drop(self, node: Node) -> None:
        """Remove a node, if it is among the usable nodes."""
        place = bisect_left(self._firsts, node.first)
        if place < len(self._firsts) and self._firsts[place] == node.first:
            self._with_gres -= bool(self._values[place].gres)
            del self._firsts[place], self._values[place]
            self._tuple = None
            self.version += 1

    @property
    def has_gres(self) -> bool:
        """Return whether any usable node has generic resources."""
        return self._with_gres > 0

    @property
    def values(self) -> tuple[NodeView, ...]:
        """Return the usable nodes in the order of their processors."""
        if self._tuple is None:
            self._tuple = tuple(self._values)
        return self._tuple


class ViewCache:
    """The parts of the last view (the state as strategies see it), and which are outdated."""

    __slots__ = (
        "below_limits",
        "capacity",
        "limits",
        "node_capacity",
        "node_version",
        "nodes",
        "place",
        "promised",
        "quiet",
        "running",
        "stale",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: ViewRow[WaitingJob] = ViewRow()
        self.promised: ViewRow[PromisedJob] = ViewRow()
        self.running: ViewRow[RunningJob] = ViewRow()
        #: The row that each job is in.
        self.place: dict[JobId, ViewRow[Any]] = {}
        #: The usable nodes.
        self.nodes = UsableNodes()
        #: Jobs that changed since the last view. A dictionary, because the order must be
        #: deterministic.
        self.stale: dict[JobId, None] = {}
        #: When jobs that refused an offer may get offers again, in seconds since the epoch.
        self.quiet: dict[JobId, float] = {}
        #: The ``ProcessorLedger.capacity`` of the last view, which limits the sizes of jobs.
        self.capacity = (0, 0)
        #: How many processors each job that needs named resources may have now.
        self.limits: dict[JobId, int] = {}
        #: How many more processors each user with a limit may have, see ``user_processor_limits``.
        self.below_limits: dict[str, int] = {}
        #: ((version of ``nodes``, suspected processors), processors without and with suspected
        #: nodes) that a job with these needs could have, see ``state/node_resources.py``.
        self.node_capacity: dict[NodeNeeds, tuple[tuple[int, ProcessorMap], int, int]] = {}
        #: The version of ``nodes`` of the last view.
        self.node_version = 0

    def put(self, row: ViewRow[V], time: float, job: JobId, value: V) -> None:
        """Put a job into this row, and remove it from any other.

        The arguments ``time``, ``job`` and ``value`` are those of `ViewRow.put`.
        """
        old = self.place.get(job)
        if old is not row:
            if old is not None:
                old.drop(job)
            self.place[job] = row
        row.put(time, job, value)

    def drop(self, job: JobId) -> None:
        """Remove a job from its row."""
        old = self.place.pop(job, None)
        if old is not None:
            old.drop(job)

"""Virtual reconfiguration: reserve nodes for jobs that block others (Chen, Xiao, Zhang 2002, 2.1).

A node is reserved when nodes are blocked although much memory is idle in the whole cluster. It
gets no new jobs. When it has a place for the largest of the jobs that fault on blocked nodes, this
job is moved there. The node stays reserved until the jobs that were moved to it have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.core.model.nodes import JobMemory, NodeReservation, ReservationState
from pliant.core.model.views_and_plans import Migration
from pliant.core.values.ids import NodeName
from pliant.strategies.load_sharing.node_table import NodeRow, NodeTable, largest_first
from pliant.strategies.load_sharing.overload import Blocked, move

RESERVING, RESERVED = ReservationState.RESERVING, ReservationState.RESERVED
#: After so many seconds, a node that is still not ready shows that the whole cluster is loaded.
LONG_RESERVING_S = 300.0


@dataclass(frozen=True, slots=True)
class ReservationRules:
    """The options for reserving nodes: limits and time-outs.

    Raises:
        ValueError: a value is out of bounds.
    """

    #: Whether a node is ready as soon as it has enough memory and a slot; otherwise when it is
    #: empty.
    early: bool = True
    #: The largest number of nodes that become free for a reservation at the same time; None if
    #: only ``max_share`` limits it.
    parallel: int | None = None
    #: The largest share of the nodes that may be reserved.
    max_share: float = 0.25
    #: A node that is not ready after so many seconds is given up; None if it is kept.
    timeout_s: float | None = None
    #: No node is reserved for so many seconds after one was given up.
    backoff_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.max_share < 1:
            raise ValueError(
                f"max-reserved must be above 0 and below 1, not {self.max_share:g}: "
                "if all nodes were reserved, no job could start"
            )
        if self.parallel is not None and self.parallel < 1:
            raise ValueError(f"parallel must be at least 1, or none, not {self.parallel}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"reserve-timeout must be above 0 s, or none, not {self.timeout_s:g}")
        if not self.backoff_s >= 0:
            raise ValueError(f"backoff must be at least 0 s, not {self.backoff_s:g}")


@dataclass(frozen=True, slots=True)
class Reservations:
    """The reserved nodes and the times of their reservations, kept from one pass to the next."""

    flags: tuple[tuple[NodeName, ReservationState, float], ...] = ()
    #: No node is reserved before this time, in seconds since the epoch.
    backoff_until: float = 0.0

    def to_memory(self) -> object:
        """Return the value of ``Plan.memory``; None if no node is reserved and no back-off runs."""
        if not self.flags and not self.backoff_until:
            return None
        return tuple((name, str(state), at) for name, state, at in self.flags), self.backoff_until

    @classmethod
    def from_memory(cls, memory: object) -> Reservations:
        """Read ``View.memory``. The memory of another strategy counts as empty."""
        match memory:
            case [[*flags], int() | float() as until]:
                found = [_flag(each) for each in flags]
                return cls(tuple(each for each in found if each is not None), float(until))
        return cls()


def _flag(entry: object) -> tuple[NodeName, ReservationState, float] | None:
    match entry:
        case [str() as name, ("reserving" | "reserved") as state, int() | float() as since]:
            # Each pass reads all entries, and a comparison is faster than a look-up in the class.
            return NodeName(name), RESERVING if state == "reserving" else RESERVED, float(since)
    return None


class Reconfiguration:
    """The reservations of nodes during one planning pass.

    Args:
        table: the nodes, with the reservations of the last pass.
        rules: the options for reserving nodes.
        now: the time of the pass, in seconds since the epoch.
        backoff_until: no node is reserved before this time.
    """

    def __init__(
        self, table: NodeTable, rules: ReservationRules, now: float, backoff_until: float
    ) -> None:
        self._table = table
        self._rules = rules
        self._now = now
        self._backoff_until = backoff_until

    def resolve(self, blocked: Sequence[Blocked]) -> list[Migration]:
        """Return migrations of jobs from blocked nodes (short of memory) to reserved nodes.

        If jobs of blocked nodes remain, and the rules allow it, another node is reserved.
        """
        open_nodes = list(blocked)
        migrations: list[Migration] = []
        for row in self._table.flagged(RESERVING):
            self._continue_reserving(row, open_nodes, migrations)
        most = self._table.largest_place(RESERVED)
        for each in tuple(open_nodes):
            goal = None
            if each.largest.demand <= most:
                goal = self._table.destination(each.largest.demand, each.row, RESERVED)
            if goal is not None:
                migrations.append(move(each.largest, each.row, goal))
                open_nodes.remove(each)
        if open_nodes and self._may_reserve():
            self._reserve(open_nodes)
        for row in self._table.flagged(RESERVED):
            if row.running == 0:
                row.flag = None
        return migrations

    def _continue_reserving(
        self, row: NodeRow, blocked: list[Blocked], migrations: list[Migration]
    ) -> None:
        """Continue to reserve the node ``row`` until it can take a large job.

        If the node is ready, the largest job of another blocked node is moved to it, and the move
        is added to ``migrations``. The reservation ends if there is no such job, or if the node is
        not ready after ``reserve-timeout`` seconds.
        """
        others = [each for each in blocked if each.row is not row]
        if not others:
            row.flag = None
            return
        chosen = min(others, key=lambda each: largest_first(each.largest))
        if self._is_ready(row, chosen.largest):
            migrations.append(move(chosen.largest, chosen.row, row))
            row.flag, row.since = RESERVED, self._now
            blocked.remove(chosen)
        elif self._rules.timeout_s is not None and self._now >= row.since + self._rules.timeout_s:
            row.flag = None
            self._backoff_until = self._now + self._rules.backoff_s

    def _is_ready(self, row: NodeRow, job: JobMemory) -> bool:
        """Return whether a reserved node can take a job now.

        The node must be empty or, with the option ``early``, have idle memory for the job. A job
        that demands more memory than any node has needs an empty node. There, no other job suffers
        from its page faults.
        """
        if not row.free:
            return False
        is_early = self._rules.early and row.has_place(min(job.demand, row.memory))
        return row.running == 0 or is_early

    def _may_reserve(self) -> bool:
        """Return whether another node may be reserved.

        No back-off may be in progress, the limits on the number of reserved nodes must allow it,
        and the idle memory of all nodes must exceed the average memory of a node.
        """
        if self._now < self._backoff_until:
            return False
        rows = self._table.rows
        states = [row.flag for row in rows]
        reserving = states.count(RESERVING)
        if self._rules.parallel is not None and reserving >= self._rules.parallel:
            return False
        if reserving + states.count(RESERVED) + 1 > self._rules.max_share * len(rows):
            return False
        known = [row for row in rows if row.is_measured]
        if not known:
            return False
        return sum(row.idle for row in known) > sum(row.memory for row in known) / len(known)

    def _reserve(self, blocked: Sequence[Blocked]) -> None:
        """Reserve an unreserved node that is not blocked, if there is one.

        The node with the most memory is taken, and among equals the one with the fewest jobs.
        """
        taken = {each.row.index for each in blocked}
        rows = [row for row in self._table.rows if row.flag is None and row.is_measured]
        found = [row for row in rows if row.index not in taken]
        if found:
            row = min(found, key=lambda row: (-row.memory, row.running, row.demand, row.index))
            row.flag, row.since = RESERVING, self._now

    def remembered(self) -> Reservations:
        """Return the reservations after this pass, to be stored for the next pass."""
        flags = tuple(
            (row.node.name, row.flag, row.since) for row in self._table.rows if row.flag is not None
        )
        return Reservations(flags, self._backoff_until if self._backoff_until > self._now else 0.0)

    def reservations(self) -> tuple[NodeReservation, ...]:
        """Return all reservations after this pass, for users."""
        return tuple(
            NodeReservation(row.node.name, row.flag, row.since, self._reason(row))
            for row in self._table.rows
            if row.flag is not None
        )

    def _reason(self, row: NodeRow) -> str:
        if row.flag is RESERVED:
            return "runs jobs that were short of memory elsewhere"
        if self._now - row.since > LONG_RESERVING_S:
            return "still not free: the whole cluster is loaded"
        return "becomes free for a job that is short of memory"

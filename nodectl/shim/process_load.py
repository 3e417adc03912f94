"""Measure what all processes below this shim use: processor time, memory, faults, and I/O.

The kernel adds the counters of a process that has ended to those of the parent that waits for it.
The sums therefore include ended processes if the counters of the shim's own children, for which
the shim waits, are kept here.
"""

from __future__ import annotations

from functools import cached_property
from operator import add
from typing import NamedTuple

from pliant.nodectl.host import procfs
from pliant.nodectl.host.procfs import ENDED_STATES, ProcessUsage

_ZERO = (0,) * len(procfs.COUNTERS)


class Load(NamedTuple):
    """What a world (set of ranks) uses on this node: processes, memory, and totals of counters."""

    #: Processes that have not ended.
    processes: int
    #: Bytes in memory now, and the most bytes in memory and swap since the world started.
    resident_bytes: int
    demand_bytes: int
    #: Totals since the world started, in the order of `procfs.COUNTERS`. They never decrease.
    counters: tuple[int, ...]


class ProcessLoad:
    """Sums the usage of all descendants of a process, including ended ones."""

    def __init__(self, root: int) -> None:
        """Prepare to measure.

        Args:
            root: the process that waits for its children and adopts orphans, as a shim does.
        """
        self._root = root
        self._known: dict[int, ProcessUsage] = {}
        #: Counters of ended children of the root.
        self._ended = _ZERO
        self._totals = _ZERO
        self._demand = 0

    @cached_property
    def _has_swap(self) -> bool:
        """Return whether this host has swap space; found out at the first measurement, and kept."""
        return procfs.has_swap()

    def measure(self, *, search: bool) -> Load:
        """Return the load since the start of the first rank, ended processes included.

        Call this before the root process waits for a child that has ended, because the counters of
        that child are lost then.

        Args:
            search: whether to search for new processes, too. That takes longer than to measure only
                the processes that were found before.
        """
        pids = procfs.descendants(self._root) if search else list(self._known)
        found: dict[int, ProcessUsage] = {}
        for pid in pids:
            usage = procfs.read_usage(pid)
            if usage is not None:
                found[pid] = usage
        for pid, before in self._known.items():
            after = found.get(pid)
            if (after is None or after.start != before.start) and before.parent == self._root:
                self._ended = tuple(map(add, self._ended, before.counters))
        if not search:  # the id of an ended process may belong to a process outside the tree
            found = {
                pid: usage for pid, usage in found.items() if usage.start == self._known[pid].start
            }
        self._known = found
        return self._sum()

    def _sum(self) -> Load:
        totals, resident, swapped, live = self._ended, 0, 0, 0
        for pid, usage in self._known.items():
            totals = tuple(map(add, totals, usage.counters))
            if usage.state not in ENDED_STATES:
                live += 1
                resident += usage.resident_bytes
                swapped += procfs.swapped_bytes(pid) if self._has_swap else 0
        # A process that ends during a measurement may be missing in it.
        self._totals = tuple(map(max, self._totals, totals))
        self._demand = max(self._demand, resident + swapped)
        return Load(live, resident, self._demand, self._totals)

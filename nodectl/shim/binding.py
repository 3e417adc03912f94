"""Keep the ranks of a world on the CPUs of their processors while the job changes its size.

Each rank is bound before it executes. The control group of the shim, where the host allows it,
additionally keeps all processes of the world on the CPUs of its running ranks: a program can change
its own affinity, but it cannot leave the set of the group.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress

from pliant.nodectl.host import cgroup
from pliant.nodectl.host.cpus import bind_tree, format_cpus
from pliant.nodectl.host.log_to_stderr import write_line
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.world_folder import StartRequest


class Binding:
    """Binds the ranks of this shim to their CPUs."""

    def __init__(self, request: StartRequest, shim: ProcessIdentity) -> None:
        """Limit the control group of this shim to the CPUs of the ranks that ``request`` names."""
        self._request, self._shim = request, shim
        numbers = [rank for rank, _ in request.ranks]
        self._cpus = {
            rank: frozenset(cpus) for rank, cpus in zip(numbers, request.cpus, strict=False)
        }
        #: The CPUs of the group: those of all ranks that run.
        self._group = frozenset[int]().union(*self._cpus.values())
        cgroup.limit_cpus(shim, self._group)

    def release(self, ranks: Iterable[Rank]) -> None:
        """Keep all processes of the world (set of ranks) off the CPUs of ranks that have ended.

        Call this before the exits are reported, because the processors may be given to another job
        from then on. Nothing is done if the ranks share their CPUs: then the controller sends an
        order, for which the shim calls `share`.

        Args:
            ranks: all ranks of the world, ended ones included.
        """
        if self._request.shares_cpus or not self._cpus:
            return
        live = [rank for rank in ranks if rank.live]
        running = [rank for rank in live if rank.runs]
        group = frozenset[int]().union(*(self._cpus[rank.rank] for rank in live))
        if not group or group == self._group:
            return
        self._group = group
        if not cgroup.limit_cpus(self._shim, group):
            return
        # Linux before 6.2 gives all CPUs of a changed group to each of its threads.
        for rank in running:
            with suppress(OSError):
                if not os.sched_getaffinity(rank.pid) <= self._cpus[rank.rank]:
                    bind_tree([rank.pid], self._cpus[rank.rank], group)

    def share(self, cpus: Collection[int], ranks: Iterable[Rank]) -> None:
        """Bind all ranks to the same CPUs, because the processors of the job have changed.

        Args:
            cpus: the CPUs of all processors that the job has on this node.
            ranks: all ranks of this shim.
        """
        if not self._request.shares_cpus or not cpus:
            return
        former, self._group = self._group, frozenset(cpus)
        # A group may only take CPUs away: a thread must be bound to those that it gets in addition.
        cgroup.limit_cpus(self._shim, former | self._group)
        bound = bind_tree([rank.pid for rank in ranks if rank.runs], self._group, former)
        enforced = cgroup.limit_cpus(self._shim, self._group)
        if not (bound or enforced):
            world, text = self._request.world, format_cpus(self._group)
            write_line(f"{world}: cannot bind all of its threads to CPUs {text}")

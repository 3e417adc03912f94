"""Find out once, at the start, how this node can limit jobs to their CPUs, memory and processes."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from pliant.nodectl.host import cgroup, procfs
from pliant.nodectl.host.cgroup_hierarchies import base, enable_controllers
from pliant.nodectl.host.cpus import cpus_of_slots, parse_cpus, places

NO_GROUP = "no control group can be made here"


class Description(NamedTuple):
    """The means that enforce each kind of limit on jobs of this node, as text for users."""

    cpus: str
    memory: str
    processes: str
    devices: str


class SlotCpus:
    """Maps the processors of this node to CPUs of the kernel.

    Processors are numbered across the cluster. The same processors, numbered from 0 on this node,
    are its slots.
    """

    def __init__(self, slots: int, cpus: str = "") -> None:
        """Assign CPUs to slots.

        Args:
            slots: how many processors of this node the scheduler may assign.
            cpus: a list such as ``0-3,8``; if empty, the CPUs that this process may use.
        """
        available = parse_cpus(cpus) if cpus else sorted(os.sched_getaffinity(0))
        self._count, self._slots = len(available), slots
        self._cpus = cpus_of_slots(slots, places(available))
        #: The number, in the cluster, of the processor that is slot 0 here; the server assigns it.
        self.first_processor = 0

    def cpus_of(self, processor: int) -> tuple[int, ...]:
        """Return the CPUs of a processor; empty if ranks are not bound on this node.

        Args:
            processor: its number in the cluster.
        """
        slot = processor - self.first_processor
        return self._cpus[slot] if 0 <= slot < len(self._cpus) else ()

    def union(self, processors: Collection[int]) -> list[int]:
        """Return all CPUs, sorted, of the given processors, which are numbered in the cluster."""
        return sorted({cpu for processor in processors for cpu in self.cpus_of(processor)})

    def why_not_bound(self) -> str:
        """Return why ranks cannot be bound to CPUs here (too few CPUs); empty if they can."""
        return "" if self._cpus else f"{self._slots} slots, but {self._count} CPUs"


def find_cgroup_controllers() -> dict[str, str]:
    """Find out which cgroup controllers this process can use: make and remove a group with each.

    Returns:
        For each controller by name, the version, such as ``cgroup v1``; empty if it cannot be used.
    """
    enable_controllers()
    cgroup.sweep()
    return {name: _version(name, file) for name, file in _FILES.items()}


def describe(slots: SlotCpus, found: Mapping[str, str], *, bind: bool) -> Description:
    """Return texts that tell users how the limits of jobs are enforced on this node.

    Args:
        slots: the CPUs of the slots.
        found: result of `find_cgroup_controllers` in the process that makes the groups of jobs.
        bind: the setting `bind` of the node.
    """
    if not bind:
        cpus = "not bound: switched off on this node"
    elif why := slots.why_not_bound():
        cpus = f"not bound: {why}"
    else:
        cpuset = found.get("cpuset", "")
        cpus = f"cpuset, {cpuset}" if cpuset else f"affinity only: {NO_GROUP}"
    return Description(
        cpus=cpus,
        memory=found.get("memory") or f"watched, not enforced by the kernel: {NO_GROUP}",
        processes=found.get("pids") or f"counted at heartbeats: {NO_GROUP}",
        devices="visibility only",
    )


#: By controller: a file that each group with this controller has, by version where they differ.
_FILES = {
    "cpuset": ("cpuset.cpus",),
    "memory": ("memory.limit_in_bytes", "memory.max"),
    "pids": ("pids.max",),
}


def _version(controller: str, files: Collection[str]) -> str:
    """Return with which cgroup version a controller can be used, such as ``cgroup v2``.

    Empty if this process cannot make a group in which one of the controller's ``files`` is
    writable. Such a group is made and removed to find this out.
    """
    where = base(controller)
    if where is None:
        return ""
    # Named like the group of a shim, so that other controllers remove it only if this one is dead.
    own = procfs.ProcessIdentity.of(os.getpid())
    group = cgroup.group_of(where, own) if own is not None else ""
    if not group or not cgroup.make_group(group):
        return ""
    try:
        usable = any(os.access(f"{group}/{file}", os.W_OK) for file in files)
    finally:
        with suppress(OSError):
            os.rmdir(group)
    return f"cgroup v{where.version}" if usable else ""

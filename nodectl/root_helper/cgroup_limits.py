"""The limits of control groups, which a shim sets on itself while it still is a process of root."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from pliant.nodectl.host import cgroup, memory_limit
from pliant.nodectl.host.procfs import ProcessIdentity


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of two control groups: of a shim with its ranks, and of the job's memory."""

    #: Tasks that the world may have; 0 if there is no limit.
    max_tasks: int
    #: Name of the job's group for memory.
    job_group: str
    #: Memory that the job may have on this node; 0 if there is no limit.
    memory_bytes: int
    #: CPUs of the world; empty if it may run anywhere.
    cpus: tuple[int, ...]

    @classmethod
    def from_record(cls, fields: dict[str, Any]) -> GroupLimits:
        """Read the limits of both groups from a message that another process of root has sent."""
        return cls(**{**fields, "cpus": tuple(fields["cpus"])})

    def enter(self) -> None:
        """Move this process, a new shim, into the memory group of its job, and set all limits.

        The groups belong to root, so no user can change them.
        """
        if self.memory_bytes:
            memory_limit.enter(self.job_group, self.memory_bytes)
        shim = ProcessIdentity.of(os.getpid())
        assert shim is not None
        if self.max_tasks:
            cgroup.limit_tasks(shim, self.max_tasks)
        if self.cpus:
            cgroup.limit_cpus(shim, self.cpus)

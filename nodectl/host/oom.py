"""Find out whether the kernel killed processes of this control group because memory was exhausted.

Shims use this module, so it imports nothing that loads slowly.
"""

from __future__ import annotations

import os
from contextlib import suppress

from pliant.nodectl.host.cgroup_hierarchies import Base, own_group

#: By version of control groups: the file of a group with the count, and the start of its line.
_FILES = {1: "memory.oom_control", 2: "memory.events"}
_LIMITS = ("memory.limit_in_bytes", "memory.max")
_LINE = "oom_kill "

#: The reason of an exit by signal 9 that the shim did not send.
UNKNOWN_KILLER = (
    "killed by signal 9 (SIGKILL), sent by itself or by another process, or by the system because "
    "the memory was exhausted"
)
OUT_OF_MEMORY = "killed by signal 9: the memory that its control group may have was exhausted"


def out_of_memory(limit_bytes: int, node: str) -> str:
    """Return the reason to report for a job that used more memory than it asked for."""
    return f"out of memory (limit {limit_bytes / (1 << 20):.15g} MiB on node {node})"


class MemoryKills:
    """Detects that the kernel killed processes for lack of memory after this object was made.

    Only processes of this process's control group count.
    """

    def __init__(self, limit_bytes: int = 0, node: str = "") -> None:
        """Store how many processes of this control group the kernel has killed so far.

        Args:
            limit_bytes: memory that the job may have on this node; 0 if it has no limit. A resize
                may change it.
            node: the name of the node, for the messages.
        """
        self._counter = kill_count_file()
        self._before = kill_count(self._counter)
        self._limit, self._node = limit_bytes, node

    def occurred(self) -> bool:
        """Return whether the kernel has killed a process of the group since `__init__`.

        The group is the control group of this process.
        """
        return kill_count(self._counter) > self._before

    def reason(self) -> str:
        """Return the reason to report for a rank killed by a signal that the shim did not send.

        It is a lack of memory if the kernel has killed a process of this control group for that;
        otherwise it says that the sender of the signal is not known.
        """
        return self._describe() if self.occurred() else UNKNOWN_KILLER

    def reason_of_failure(self) -> str:
        """Return why a rank failed, if the kernel killed a process that the rank had started.

        Empty if the kernel has killed no process for lack of memory.
        """
        if not self.occurred():
            return ""
        return f"a process that it had started was killed: {self._describe()}"

    def _describe(self) -> str:
        if not self._limit:
            return OUT_OF_MEMORY
        return out_of_memory(_read_limit(self._counter) or self._limit, self._node)


def reason_of_group(group: Base, limit_bytes: int, node: str) -> str:
    """Return a reason if the kernel killed processes of a job for lack of memory; else empty.

    Args:
        group: the group of a job, whose shim may be one of the killed processes.
        limit_bytes: memory that the job asked for; used if the limit of the group is unknown.
        node: the name of this node, for the text.
    """
    file = f"{group.folder}/{_FILES[group.version]}"
    if not kill_count(file):
        return ""
    return out_of_memory(_read_limit(file) or limit_bytes, node)


def kill_count(path: str) -> int:
    """Read from a control group's file how many processes were killed for lack of memory.

    Return 0 if the file cannot be read.
    """
    try:
        with open(path, encoding="ascii") as file:
            return sum(int(line[len(_LINE) :]) for line in file if line.startswith(_LINE))
    except (OSError, ValueError):
        return 0


def _read_limit(path: str) -> int:
    """Return the memory limit of a control group in bytes; 0 if it is unknown.

    Args:
        path: the path of any file in the folder of the group.
    """
    for name in _LIMITS:
        file = f"{os.path.dirname(path)}/{name}"
        with suppress(OSError, ValueError), open(file, encoding="ascii") as opened:
            return int(opened.read())
    return 0


def kill_count_file() -> str:
    """Return the path of the file in which the kernel counts processes it killed for memory.

    The file is that of this process's control group. Empty if no control groups are mounted.
    """
    group = own_group("memory") or own_group("")
    return f"{group.folder}/{_FILES[group.version]}" if group is not None else ""

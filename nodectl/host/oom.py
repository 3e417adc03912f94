"""Find out whether the kernel killed processes of this control group because memory was exhausted.

Shims use this module, so it imports nothing that loads slowly.
"""

from __future__ import annotations

from functools import lru_cache

#: By version of control groups: the file of a group; and the start of the line with the count.
_FILES = {1: "memory.oom_control", 2: "memory.events"}
_LINE = "oom_kill "

#: The reason of an exit by signal 9 that the shim did not send.
UNKNOWN_KILLER = (
    "killed by signal 9 (SIGKILL), sent by itself or by another process, or by the system because "
    "the memory was exhausted"
)
OUT_OF_MEMORY = "killed by signal 9: the memory that its control group may have was exhausted"


class MemoryKills:
    """Remembers the count at the start of a world, to compare it later."""

    def __init__(self) -> None:
        self._before = kill_count()

    def reason(self) -> str:
        """Return why a process was killed that the shim did not kill."""
        return OUT_OF_MEMORY if kill_count() > self._before else UNKNOWN_KILLER


def kill_count() -> int:
    """Return how many processes of this group were killed for memory; 0 if there is no count."""
    try:
        with open(_counter(), encoding="ascii") as file:
            return sum(int(line[len(_LINE) :]) for line in file if line.startswith(_LINE))
    except (OSError, ValueError):
        return 0


@lru_cache(maxsize=1)
def _counter() -> str:
    """Return the file with the count; empty if there is none."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return ""
    return counter_of(groups, mounts)


def counter_of(groups: list[list[str]], mounts: list[list[str]]) -> str:
    """Return the file with the count of a group.

    Args:
        groups: number, controllers and path of each group of a process.
        mounts: device, folder, type and options of each mount.
    """
    for _, controllers, path in groups:
        if "memory" in controllers.split(","):
            for _, folder, kind, options, *_ in mounts:
                if kind == "cgroup" and "memory" in options.split(","):
                    return f"{folder}{path.rstrip('/')}/{_FILES[1]}"
    for number, _, path in groups:
        if number == "0":
            for _, folder, kind, *_ in mounts:
                if kind == "cgroup2":
                    return f"{folder}{path.rstrip('/')}/{_FILES[2]}"
    return ""

"""The memory that jobs may use on this node: that of the host, or of its control group.

If the control group of the node has a limit, the host's free memory is not what jobs can use. Then
free memory and memory pressure are those of the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


class _Group(NamedTuple):
    """A control group that this process is in, directly or through its parents."""

    version: int
    folder: Path
    #: Its limit in bytes. None if it has none.
    limit: int | None


class FreeMemory(NamedTuple):
    """The free memory and the memory pressure of this node at one time."""

    #: Bytes that new allocations could use, without swap.
    available: int
    #: Percentage of the last 10 s in which a process waited for memory. None if not known.
    pressure: float | None


def usable_memory(cgroup_file: str = "/proc/self/cgroup", root: Path = _CGROUPS) -> int:
    """Return how many bytes of memory the processes of this node can use.

    Args:
        cgroup_file: names the control groups of this process.
        root: the folder in which control groups are mounted.
    """
    limits = [group.limit for group in _groups(cgroup_file, root) if group.limit is not None]
    return min([psutil.virtual_memory().total, *limits])


def free_memory(
    cgroup_file: str = "/proc/self/cgroup", root: Path = _CGROUPS, proc: Path = _PROC
) -> FreeMemory:
    """Return the free memory and the memory pressure of this node.

    Pressure is that of the group whose limit is the smallest, or that of the host if no group has
    a limit below the memory of the host. Groups of version 1 have no pressure.

    Args:
        cgroup_file: names the control groups of this process.
        root: the folder in which control groups are mounted.
        proc: the folder in which the proc file system is mounted.
    """
    host = psutil.virtual_memory()
    limited = [
        (group.limit, group)
        for group in _groups(cgroup_file, root)
        if group.limit is not None and group.limit < host.total
    ]
    available = min([host.available, *(_available(group, limit) for limit, group in limited)])
    if not limited:
        return FreeMemory(available, _pressure(proc / "pressure/memory"))
    group = min(limited)[1]
    return FreeMemory(available, _pressure(group.folder / "memory.pressure"))


def _groups(cgroup_file: str, root: Path) -> Iterator[_Group]:
    """Yield the control groups of this process that limit memory, and the groups above them."""
    try:
        lines = Path(cgroup_file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _groups_above(2, root, path)
        elif "memory" in controllers.split(","):
            yield from _groups_above(1, root / "memory", path)


def _groups_above(version: int, root: Path, path: str) -> Iterator[_Group]:
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    folder = root / path.lstrip("/")
    while folder == root or root in folder.parents:
        text = _read(folder / name)  # The root of version 2 has no such file.
        is_limit = text.isdigit() and int(text) > 0  # "max" is no limit.
        yield _Group(version, folder, int(text) if is_limit else None)
        folder = folder.parent


def _available(group: _Group, limit: int) -> int:
    """Return how many bytes a control group may still use; memory of cached files counts as unused.

    Args:
        group: the group.
        limit: its limit in bytes.
    """
    name = "memory.usage_in_bytes" if group.version == 1 else "memory.current"
    prefix = "total_" if group.version == 1 else ""
    text = _read(group.folder / name)
    if not text.isdigit():
        return limit
    stat = dict(
        line.split(" ", 1)
        for line in _read(group.folder / "memory.stat").splitlines()
        if " " in line
    )
    files = [stat.get(f"{prefix}{kind}_file", "0") for kind in ("active", "inactive")]
    reusable = sum(int(each) for each in files if each.isdigit())
    return max(0, limit - max(0, int(text) - reusable))


def _pressure(path: Path) -> float | None:
    """Return the percentage of the last 10 s in which a process waited for memory; None if unknown.

    Args:
        path: the kernel's file of memory pressure (PSI).
    """
    for line in _read(path).splitlines():
        if line.startswith("some "):
            for part in line.split()[1:]:
                name, _, value = part.partition("=")
                if name == "avg10" and value.replace(".", "", 1).isdigit():
                    return float(value)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""

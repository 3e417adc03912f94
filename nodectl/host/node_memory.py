"""The memory that jobs may use on this node: that of the host, or of its control group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")


def usable_memory(cgroup_file: str = "/proc/self/cgroup", root: Path = _CGROUPS) -> int:
    """Return how many bytes of memory the processes of this node can use.

    Args:
        cgroup_file: names the control groups of this process.
        root: where control groups are mounted.
    """
    return min([psutil.virtual_memory().total, *_limits(cgroup_file, root)])


def _limits(cgroup_file: str, root: Path) -> Iterator[int]:
    """Yield the memory limits, in bytes, of this process's control groups and their parents."""
    try:
        lines = Path(cgroup_file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _limits_above(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_above(root / "memory", path, "memory.limit_in_bytes")


def _limits_above(root: Path, path: str, name: str) -> Iterator[int]:
    group = root / path.lstrip("/")
    while group == root or root in group.parents:
        try:
            text = (group / name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            text = ""  # The root of version 2 has no such file, and "max" is no limit.
        if text.isdigit() and int(text) > 0:
            yield int(text)
        group = group.parent

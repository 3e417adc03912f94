"""The limit of memory that the processes of a job on this node have together.

All shims of the job join one group that has the limit. The kernel charges memory to the group in
which a process is when it uses the memory first, so a shim joins before it starts its ranks. Only
jobs with a limit have this group. Shims use this module, so it imports nothing that loads slowly.
"""

from __future__ import annotations

import os
from contextlib import suppress

from pliant.nodectl.host import cgroup
from pliant.nodectl.host.cgroup_hierarchies import Base, base, write
from pliant.nodectl.host.procfs import ProcessIdentity

#: By version: the limit of memory; and the limit that keeps the job from using swap instead, which
#: exists only if the kernel counts swap.
_LIMITS = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    2: ("memory.max", "memory.swap.max"),
}

#: Attempts to join a group that another shim of the job removes at the same time.
_ATTEMPTS = 20

MEBIBYTE = 1 << 20


def group_name(job: int, run: int, node: int | os.PathLike[str]) -> str:
    """Return the name of the control group that limits the memory of a job's run.

    Args:
        job: its number.
        run: the number of the run of the job.
        node: the state folder of the node, or a descriptor of it. Several nodes, and several
            clusters, may be on one host, and each of them has its own limit.
    """
    status = os.stat(node)
    return f"{cgroup.JOB_PREFIX}{job}.{run}-{status.st_dev:x}.{status.st_ino:x}"


def find_group(name: str) -> Base | None:
    """Return the cgroup version and path of the group that limits a job's memory.

    The group need not exist. None if this process cannot make groups that limit memory.
    """
    where = base("memory")
    return where and Base(where.version, f"{where.folder}/{name}")


def enter(name: str, limit_bytes: int) -> bool:
    """Move this process, a shim without ranks, into the memory group of its job.

    ``limit_bytes`` becomes the limit of the group.

    Returns:
        Whether the kernel enforces the limit.
    """
    where = base("memory")
    if where is None:
        return False
    job = f"{where.folder}/{name}"
    for _ in range(_ATTEMPTS):
        if not cgroup.make_group(job):
            return False
        if _set_limit(job, where.version, limit_bytes) and _join(where, job):
            return True
        if os.path.isdir(job):
            break
    leave(name)
    return False


def change(name: str, limit_bytes: int) -> bool:
    """Change the memory limit of a job; return whether the kernel enforces the new one."""
    where = base("memory")
    return where is not None and _set_limit(f"{where.folder}/{name}", where.version, limit_bytes)


def _set_limit(folder: str, version: int, limit_bytes: int) -> bool:
    memory, swap = (f"{folder}/{name}" for name in _LIMITS[version])
    swap_text = str(limit_bytes) if version == 1 else "0"
    # In version 1 the second limit includes the first one, so it must be raised before that.
    write(swap, swap_text)
    done = write(memory, str(limit_bytes))
    write(swap, swap_text)
    return done


def _join(where: Base, job: str) -> bool:
    if where.version == 1:
        return write(f"{job}/cgroup.procs", "0")
    # The shim keeps a group of its own inside, with its own limits of processes and CPUs.
    write(f"{job}/cgroup.subtree_control", "+pids +cpuset")
    former, name = _own_group_v2(where)
    if not cgroup.make_group(f"{job}/{name}", join=True):
        return False
    _rmdir(former)
    return True


def leave(name: str) -> None:
    """Move this process, a shim whose ranks have ended, out of its job's memory group.

    The last shim of the job removes the group.
    """
    where = base("memory")
    if where is None:
        return
    job = f"{where.folder}/{name}"
    if where.version == 1:
        write(f"{where.folder}/cgroup.procs", "0")
    elif os.path.isdir(job):
        own, shim = _own_group_v2(where)
        if own != f"{where.folder}/{shim}":
            cgroup.make_group(f"{where.folder}/{shim}", join=True)
            _rmdir(own)
    _rmdir(job)


def _own_group_v2(where: Base) -> tuple[str, str]:
    """Return path and name of this shim's control group of version 2, which may not exist yet."""
    shim = ProcessIdentity.of(os.getpid())
    assert shim is not None
    return cgroup.group_of(where, shim), f"{cgroup.SHIM_PREFIX}{shim.pid}-{shim.start}"


def _rmdir(folder: str) -> None:
    with suppress(OSError):  # another shim is in it, or has removed it
        os.rmdir(folder)

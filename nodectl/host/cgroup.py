"""A control group for each shim, where the kernel lets this user make one (cgroup v2).

A process that a rank starts can change its session, its parent and its environment, but it stays in
its control group. A living shim finds all processes by walking the process tree. The group is
needed after a shim was killed: then the controller finds the processes in it. Joining a group takes
the kernel milliseconds, so a shim does it once, before its first world. If groups cannot be made,
the functions do nothing.

Shims use this module, so it imports nothing that loads slowly.
"""

from __future__ import annotations

import os
from functools import lru_cache

from pliant.nodectl.host import process_limit, procfs
from pliant.nodectl.host.procfs import ProcessIdentity

_PREFIX = "pliant-shim-"


@lru_cache(maxsize=1)
def base_folder() -> str:
    """Return the folder in which this process may make groups; empty if there is none."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            own = [line.strip()[3:] for line in file if line.startswith("0::")]
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1] for line in file if line.split()[2] == "cgroup2"]
    except OSError:
        return ""
    if not own or not mounts:
        return ""
    folder = mounts[0] + own[0].rstrip("/")
    usable = os.access(folder, os.W_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)
    return folder if usable else ""


def enter() -> bool:
    """Move this process, a shim that has no ranks yet, into its own new group."""
    shim = ProcessIdentity.of(os.getpid())
    if shim is None:
        return False
    process_limit.enter(shim, base_folder())
    folder = _folder(shim)
    if not folder:
        return False
    try:
        os.mkdir(folder, 0o755)
        with open(f"{folder}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")
    except OSError:
        _remove(folder)
        return False
    return True


def leave() -> None:
    """Move this process, a shim that has no world any more, out of its group; remove the group."""
    shim = ProcessIdentity.of(os.getpid())
    if shim is None:
        return
    process_limit.leave(shim)
    if not members(shim):
        return
    try:
        with open(f"{base_folder()}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")
    except OSError:
        return  # the next `sweep` removes the group
    remove(shim)


def limit_tasks(shim: ProcessIdentity, tasks: int) -> bool:
    """Limit the tasks of a shim and its descendants; return whether the kernel enforces that."""
    return process_limit.limit(shim, _folder(shim), tasks)


def members(shim: ProcessIdentity) -> set[int]:
    """Return the processes in the group of a shim, including zombies."""
    try:
        with open(f"{_folder(shim)}/cgroup.procs", encoding="ascii") as file:
            return {int(line) for line in file}
    except OSError:
        return set()


def kill(shim: ProcessIdentity) -> None:
    """Kill all processes in the group of a shim at once, so that none can escape by forking."""
    try:
        with open(f"{_folder(shim)}/cgroup.kill", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        pass  # no group, or a kernel before 5.14: the caller kills the members one by one


def remove(shim: ProcessIdentity) -> None:
    """Remove the groups of a shim if they are empty."""
    process_limit.remove(shim)
    _remove(_folder(shim))


def sweep() -> None:
    """Remove the empty groups of shims that have ended."""
    _sweep(base_folder())
    _sweep(process_limit.base_folder())


def _sweep(folder: str) -> None:
    for name in os.listdir(folder) if folder else ():
        if name.startswith(_PREFIX) and not _alive(name):
            _remove(f"{folder}/{name}")


def _alive(name: str) -> bool:
    try:
        pid, start = map(int, name.removeprefix(_PREFIX).split("-"))
    except ValueError:
        return True  # not one of ours
    return ProcessIdentity(procfs.boot_id(), pid, start).alive()


def _folder(shim: ProcessIdentity) -> str:
    folder = base_folder()
    return f"{folder}/{_PREFIX}{shim.pid}-{shim.start}" if folder else ""


def _remove(folder: str) -> None:
    try:
        _sweep(folder)  # of a cluster that ran as a job
        os.rmdir(folder)
    except OSError:
        pass  # it is not there, or somebody is in it: the next sweep

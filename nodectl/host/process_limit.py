"""Limit the tasks of a shim and its ranks, if the kernel lets this user do so.

A job with too many processes is ended at the next heartbeat. Until then it must not use up all
process ids, because the daemons and other jobs need some. If the pids controller is available
(cgroup v2 with the controller delegated, or the hierarchy of cgroup v1), the tasks of each shim and
its descendants are limited. Otherwise, if the account has a limit on processes (`RLIMIT_NPROC`),
ranks get a slightly lower one.

The kernel counts threads as tasks, and a rank may have dozens of them: the limit is far above the
number of processes that a job may have. Shims use this module, so it imports nothing that loads
slowly.
"""

from __future__ import annotations

import os
import resource
from functools import lru_cache

from pliant.nodectl.host.procfs import ProcessIdentity

_PREFIX = "pliant-shim-"
#: Tasks per process that a job may have, and an addition that matters for small limits.
_TASKS_PER_PROCESS, _MORE_TASKS = 4, 256
#: Processes, at most, that ranks leave free for the daemons of their account.
_RESERVED = 64


def task_limit(most_processes: int) -> int:
    """Return how many tasks the part of a job on this node may have.

    Args:
        most_processes: processes that a job may have here; 0 means the default.
    """
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        most = int(file.read()) * 3 // 4
    wanted = _TASKS_PER_PROCESS * most_processes + _MORE_TASKS
    return min(wanted, most) if most_processes else most


@lru_cache(maxsize=1)
def base_folder() -> str:
    """Return the folder of the v1 hierarchy where groups can be made; empty if there is none."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            own = [line.strip().split(":", 2) for line in file]
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return ""
    paths = [path for _, controllers, path in own if "pids" in controllers.split(",")]
    roots = [words[1] for words in mounts if words[2] == "cgroup" and "pids" in words[3].split(",")]
    if not paths or not roots:
        return ""
    folder = roots[0] + paths[0].rstrip("/")
    usable = os.access(folder, os.W_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)
    return folder if usable else ""


def folder_of(shim: ProcessIdentity) -> str:
    """Return the group of a shim in the v1 hierarchy; empty if there can be none."""
    return f"{base_folder()}/{_PREFIX}{shim.pid}-{shim.start}" if base_folder() else ""


def enter(shim: ProcessIdentity, delegated: str) -> None:
    """Move this process, a shim that has no ranks yet, into a group that counts its tasks.

    Args:
        shim: this process.
        delegated: the v2 folder of the groups of shims; empty if there is none.
    """
    if delegated:
        _write(f"{delegated}/cgroup.subtree_control", "+pids")
    if folder := folder_of(shim):
        try:
            os.mkdir(folder, 0o755)
        except OSError:
            return
        if not _write(f"{folder}/cgroup.procs", "0"):
            remove(shim)


def limit(shim: ProcessIdentity, group: str, tasks: int) -> bool:
    """Limit the tasks of a shim and its descendants.

    Args:
        shim: the shim.
        group: its v2 group; empty if it has none.
        tasks: largest number of tasks.

    Returns:
        Whether the kernel enforces the limit.
    """
    for folder in (group, folder_of(shim)):
        if folder and os.path.exists(f"{folder}/pids.max"):
            return _write(f"{folder}/pids.max", str(tasks))
    return False


def leave(shim: ProcessIdentity) -> None:
    """Move this process, a shim that has no world any more, out of its group; remove the group."""
    if base_folder() and _write(f"{base_folder()}/cgroup.procs", "0"):
        remove(shim)


def remove(shim: ProcessIdentity) -> None:
    """Remove the group of a shim if it is empty."""
    try:
        os.rmdir(folder_of(shim))
    except OSError:
        pass  # it is not there, or somebody is in it: the next sweep


def reserve_processes() -> None:
    """Lower the process limit of this rank below that of its account, which daemons share."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY:
        lower = soft - min(_RESERVED, soft // 8)
        resource.setrlimit(resource.RLIMIT_NPROC, (lower, lower if hard == soft else hard))


def _write(path: str, text: str) -> bool:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError:
        return False
    return True

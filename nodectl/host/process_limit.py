"""How many tasks the ranks below a shim may have, where the kernel lets this user say so.

A job that starts processes without end is ended when a beat finds too many of them. Until then it
must not use up all that the kernel has to give, because the daemons and other jobs need some. Where
the pids controller is available (cgroup v2 with the controller delegated, or the hierarchy of
cgroup v1), each shim with all that its ranks start may have a limited number of tasks. Elsewhere
the ranks of an account that has a limit on processes stop a little below it (`RLIMIT_NPROC`).

The kernel counts threads here, and a rank may have dozens of them: the limit is far above the
number of processes that a job may have. Nothing heavy is imported: shims use it.
"""

from __future__ import annotations

import os
import resource
from functools import lru_cache

from pliant.nodectl.host.procfs import Identity

_PREFIX = "pliant-shim-"
#: Tasks for each process that a job may have, and some more for small limits.
_TASKS_PER_PROCESS, _MORE_TASKS = 4, 256
#: Processes that ranks leave to the daemons of their account, at most.
_RESERVED = 64


def task_limit(most_processes: int) -> int:
    """Return how many tasks the part of a job on this node may have.

    Args:
        most_processes: that a job may have here; 0: the default.
    """
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        most = int(file.read()) * 3 // 4
    wanted = _TASKS_PER_PROCESS * most_processes + _MORE_TASKS
    return min(wanted, most) if most_processes else most


@lru_cache(maxsize=1)
def base_folder() -> str:
    """Return the folder of the v1 hierarchy where groups can be made; empty: nowhere."""
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


def folder_of(shim: Identity) -> str:
    """Return the group of a shim in the v1 hierarchy; empty: there can be none."""
    return f"{base_folder()}/{_PREFIX}{shim.pid}-{shim.start}" if base_folder() else ""


def enter(shim: Identity, delegated: str) -> None:
    """Move this process, a shim without ranks yet, to where its tasks can be counted.

    Args:
        shim: this process.
        delegated: the v2 folder in which shims have their groups; empty: there is none.
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


def limit(shim: Identity, group: str, tasks: int) -> bool:
    """Limit the tasks of a shim and all that is below it.

    Args:
        shim: whose.
        group: its v2 group; empty: it has none.
        tasks: how many there may be.

    Returns:
        Whether the kernel keeps to it.
    """
    for folder in (group, folder_of(shim)):
        if folder and os.path.exists(f"{folder}/pids.max"):
            return _write(f"{folder}/pids.max", str(tasks))
    return False


def leave(shim: Identity) -> None:
    """Move this process, a shim that has no world any more, out of its group and remove that."""
    if base_folder() and _write(f"{base_folder()}/cgroup.procs", "0"):
        remove(shim)


def remove(shim: Identity) -> None:
    """Remove the group of a shim, if nobody is in it any more."""
    try:
        os.rmdir(folder_of(shim))
    except OSError:
        pass  # it is not there, or somebody is in it: the next sweep


def reserve_processes() -> None:
    """Have this process, a rank, stop below the limit of its account, which daemons share."""
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

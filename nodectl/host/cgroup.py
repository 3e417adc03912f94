"""The control groups of a shim and its ranks, where the kernel lets this user make some.

A process that a rank starts can change its session, its parent and its environment, but it stays in
its control group. A living shim finds all processes by walking the process tree. The group is
needed after a shim was killed: then the controller finds the processes in it. The group also limits
the processes, and the CPUs on which they may run.

In version 2 a shim has one group. In version 1 it has one of the same name in the hierarchy of each
controller that is used. Joining a group can take the kernel milliseconds, so a shim does it once,
before its first world, and only the limits change with each world. If groups cannot be made, the
functions do nothing.

Shims use this module, so it imports nothing that loads slowly.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress

from pliant.nodectl.host import procfs
from pliant.nodectl.host.cgroup_hierarchies import Base, base, write
from pliant.nodectl.host.cpus import format_cpus
from pliant.nodectl.host.procfs import ProcessIdentity

SHIM_PREFIX, JOB_PREFIX = "pliant-shim-", "pliant-job-"

#: Rounds in which processes of a frozen group are killed; a process may be moved in meanwhile.
_MAX_ROUNDS = 100


def bases() -> list[Base]:
    """Return the folders below which a shim (the parent of a job's ranks) makes its control groups.

    These are the folder of version 2, and those of the controllers that version 1 has.
    """
    found = [base(""), base("cpuset"), base("pids")]
    if base("") is None:
        found.append(base("freezer"))  # version 2 needs it neither to find nor to kill processes
    return list(dict.fromkeys(each for each in found if each is not None))


def enter() -> bool:
    """Move this process, a shim without ranks, into new control groups of its own.

    Returns:
        Whether at least one group could be made.
    """
    shim = ProcessIdentity.of(os.getpid())
    if shim is None:
        return False
    entered = [make_group(group_of(each, shim), join=True) for each in bases()]
    return any(entered)


def make_group(folder: str, *, join: bool = False) -> bool:
    """Make a control group, and with ``join`` move this process into it.

    Returns:
        Whether the group exists and, with ``join``, this process is in it.
    """
    try:
        os.mkdir(folder, 0o755)
        os.chmod(folder, 0o755)  # whatever the umask is: users read counts in groups of root
    except FileExistsError:
        pass
    except OSError:
        return False
    _copy_cpuset(folder)
    if not join or write(f"{folder}/cgroup.procs", "0"):
        return True
    _remove(folder)
    return False


def _copy_cpuset(folder: str) -> None:
    """Copy CPUs and memory nodes of the parent to a v1 group that has none.

    Without them, the kernel lets no process enter the group.
    """
    for name in ("cpuset.cpus", "cpuset.mems"):
        with suppress(OSError):
            with open(f"{folder}/{name}", encoding="ascii") as file:
                if file.read().strip():
                    continue
            with open(f"{os.path.dirname(folder)}/{name}", encoding="ascii") as file:
                write(f"{folder}/{name}", file.read().strip())


def leave() -> None:
    """Move this process, a shim without ranks, out of its control groups, and remove them."""
    shim = ProcessIdentity.of(os.getpid())
    if shim is None:
        return
    for each in bases():
        if os.path.isdir(group_of(each, shim)):
            write(f"{each.folder}/cgroup.procs", "0")
    remove(shim)


def limit_tasks(shim: ProcessIdentity, tasks: int) -> bool:
    """Limit how many threads and processes a shim and its descendants may have together.

    Returns:
        Whether the kernel enforces the limit.
    """
    return _limit("pids", shim, "pids.max", str(tasks))


def limit_cpus(shim: ProcessIdentity, cpus: Collection[int]) -> bool:
    """Restrict a shim and its descendants to CPUs; return whether the kernel enforces this.

    Args:
        shim: the shim, the parent of a job's ranks.
        cpus: the CPUs; if empty, all CPUs of the node.
    """
    where = base("cpuset")
    if where is None:
        return False
    text = format_cpus(cpus)
    if not text and where.version == 1:  # an empty set is not allowed while it has processes
        with suppress(OSError), open(f"{where.folder}/cpuset.cpus", encoding="ascii") as file:
            text = file.read().strip()
    return _limit("cpuset", shim, "cpuset.cpus", text or "\n")


def _limit(controller: str, shim: ProcessIdentity, name: str, text: str) -> bool:
    where = base(controller)
    if where is None:
        return False
    file = f"{group_of(where, shim)}/{name}"
    return os.path.exists(file) and write(file, text)


def members(shim: ProcessIdentity) -> set[int]:
    """Return the ids of all processes in a shim's control groups, including zombies."""
    return {pid for each in bases() for pid in _members(group_of(each, shim))}


def _members(folder: str) -> set[int]:
    try:
        with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
            return {int(line) for line in file}
    except OSError:
        return set()


def kill(shim: ProcessIdentity) -> None:
    """Kill all processes in a shim's control groups, so that none can escape by forking."""
    for each in bases():
        if kill_group(group_of(each, shim)):
            return


def kill_group(folder: str) -> bool:
    """Kill all processes in a control group at once.

    In version 2 the kernel does that. In version 1 the group is frozen first, so that no process
    can fork while the others are killed; a frozen process dies when it is thawed.

    Returns:
        False if this group cannot be killed at once; the caller then kills one process at a time.
    """
    if write(f"{folder}/cgroup.kill", "1"):
        return True
    state = f"{folder}/freezer.state"
    if not os.path.exists(state) or not write(state, "FROZEN"):
        return False
    try:
        killed = set[int]()
        for _ in range(_MAX_ROUNDS):
            fresh = _members(folder) - killed
            if not fresh:
                break
            for pid in fresh:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            killed |= fresh
    finally:
        write(state, "THAWED")
    return True


def remove(shim: ProcessIdentity) -> None:
    """Remove the control groups of a shim (the parent of a job's ranks) if they are empty."""
    for each in bases():
        _remove(group_of(each, shim))


def sweep() -> None:
    """Remove the empty control groups of jobs and of shims (parents of ranks) that have ended."""
    for each in {*bases(), base("memory")}:
        if each is not None:
            _sweep(each.folder)


def sweep_jobs() -> None:
    """Remove all control groups that limit the memory of jobs and have no process left.

    Such a group is left if a process of a killed shim was still in it when the group should have
    been removed.
    """
    where = base("memory")
    folder = where.folder if where is not None else ""
    with suppress(OSError):
        for name in os.listdir(folder) if folder else ():
            if name.startswith(JOB_PREFIX):
                _remove(f"{folder}/{name}")


def _sweep(folder: str) -> None:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if name.startswith(JOB_PREFIX) or (name.startswith(SHIM_PREFIX) and not _alive(name)):
            _remove(f"{folder}/{name}")


def _alive(name: str) -> bool:
    try:
        pid, start = map(int, name.removeprefix(SHIM_PREFIX).split("-"))
    except ValueError:
        return True  # not one of ours
    return ProcessIdentity(procfs.boot_id(), pid, start).alive()


def group_of(where: Base, shim: ProcessIdentity) -> str:
    """Return the path of a shim's control group.

    Args:
        where: the folder in which this process makes control groups. In version 2, the group of a
            job that has a memory limit is between this folder and the shim's group.
        shim: the shim, the process that starts ranks.
    """
    name = f"{SHIM_PREFIX}{shim.pid}-{shim.start}"
    direct = f"{where.folder}/{name}"
    if where.version == 2 and base("memory") == where and not os.path.isdir(direct):
        return next((f"{job}/{name}" for job in _job_groups(where.folder, name)), direct)
    return direct


def _job_groups(folder: str, name: str) -> Iterator[str]:
    """Yield the paths of the groups in ``folder`` that limit a job and have a subgroup ``name``."""
    with suppress(OSError):
        for entry in os.listdir(folder):
            if entry.startswith(JOB_PREFIX) and os.path.isdir(f"{folder}/{entry}/{name}"):
                yield f"{folder}/{entry}"


def _remove(folder: str) -> None:
    with suppress(OSError):  # it is not there, or somebody is in it: the next sweep removes it
        _sweep(folder)  # of a cluster that ran as a job
        os.rmdir(folder)

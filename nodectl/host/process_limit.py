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

import resource

#: Tasks per process that a job may have, and an addition that matters for small limits.
_TASKS_PER_PROCESS, _MORE_TASKS = 4, 256
#: Processes, at most, that ranks leave free for the daemons of their account.
_RESERVED = 64


def task_limit(most_processes: int) -> int:
    """Return how many threads and processes a job may have on this node.

    Args:
        most_processes: processes that a job may have here; 0 for the default, with which the result
            is three quarters of the kernel's process ids.
    """
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        most = int(file.read()) * 3 // 4
    wanted = _TASKS_PER_PROCESS * most_processes + _MORE_TASKS
    return min(wanted, most) if most_processes else most


def reserve_processes() -> None:
    """Lower this process's limit on processes (RLIMIT_NPROC), which ranks started later inherit.

    So daemons of the same account can still fork when a job has used up the ranks' limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY:
        lower = soft - min(_RESERVED, soft // 8)
        resource.setrlimit(resource.RLIMIT_NPROC, (lower, lower if hard == soft else hard))

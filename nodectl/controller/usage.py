"""Memory and processes of the jobs on this node, and which jobs exceed their limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from pliant.nodectl.host import procfs
from pliant.protos import node_pb2 as wire


def job_usage(shims: Iterable[tuple[int, int]]) -> list[wire.JobUsage]:
    """Return the usage of each job.

    Args:
        shims: pairs of job and process id, one for each shim of a job.
    """
    found: dict[int, wire.JobUsage] = {}
    for job, shim in shims:
        usage = found.setdefault(job, wire.JobUsage(job=job))
        for pid in procfs.descendants(shim):
            stat = procfs.read_stat(pid)
            if stat is not None:
                usage.resident_bytes += stat.resident_bytes
                usage.major_faults += stat.major_faults
                usage.processes += 1
    return list(found.values())


def over_process_limit(used: Iterable[wire.JobUsage], limit: int) -> Iterator[tuple[int, str]]:
    """Yield the jobs that have too many processes here, each with the reason to end it.

    Args:
        used: usage of each job.
        limit: processes that a job may have; 0 means half of the kernel's process ids.
    """
    limit = limit or _default_limit()
    for usage in used:
        if usage.processes > limit:
            yield usage.job, f"it had {usage.processes} processes, and may have {limit} on a node"


@cache
def _default_limit() -> int:
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        return int(file.read()) // 2

"""What the jobs of this node use, for the server's beats."""

from __future__ import annotations

from collections.abc import Iterable

from pliant.nodectl import procfs
from pliant.protos import node_pb2 as wire


def job_usage(shims: Iterable[tuple[int, int]]) -> list[wire.JobUsage]:
    """Return the usage of each job, from pairs of job and process id of one of its shims."""
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

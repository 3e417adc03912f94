"""Memory and processes of the jobs on this node, and which jobs exceed their limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from pliant.nodectl.controller.world_state import LocalWorld
from pliant.nodectl.host import memory_limit, procfs
from pliant.nodectl.host.oom import out_of_memory
from pliant.protos import node_pb2 as wire


def job_usage(shims: Iterable[tuple[int, int]]) -> list[wire.JobUsage]:
    """Return the memory and the number of processes that each job uses here.

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
    """Yield the number of each job with too many processes on this node, and the reason to end it.

    Args:
        used: usage of each job.
        limit: processes that a job may have; 0 means half of the kernel's process ids.
    """
    limit = limit or _default_limit()
    for usage in used:
        if usage.processes > limit:
            yield usage.job, f"it had {usage.processes} processes, and may have {limit} on a node"


class MemoryLimits:
    """The memory limits of the jobs on this node, which change when the jobs are resized.

    The kernel enforces them where it can. A job that exceeds its limit in spite of that is ended.
    """

    def __init__(self, node: str, state: Path) -> None:
        """Begin without any jobs.

        Args:
            node: name of this node.
            state: its state folder.
        """
        self._node, self._state = node, state
        self._limits: dict[tuple[int, int], int] = {}

    def exceeded(
        self, used: Iterable[wire.JobUsage], worlds: Iterable[LocalWorld]
    ) -> list[tuple[int, str]]:
        """Return the number of each job that uses too much memory, and the reason to end it.

        Args:
            used: usage of each job.
            worlds: the ranks of all jobs here, in the sets in which they were started.
        """
        jobs: dict[tuple[int, int], list[LocalWorld]] = {}
        for world in worlds:
            # A world without a shim has raised the limit, or will do so any moment.
            if world.request.memory_per_rank_bytes and not world.ended:
                jobs.setdefault((world.request.job, world.request.run), []).append(world)
        self._limits = {key: self._limits.get(key, 0) for key in jobs}
        resident = {usage.job: usage.resident_bytes for usage in used}
        return [
            (key[0], f"{out_of_memory(self._limits[key], self._node)}, seen at a heartbeat")
            for key, mine in jobs.items()
            if self._is_exceeded(key, mine, resident.get(key[0], 0))
        ]

    def _is_exceeded(self, key: tuple[int, int], worlds: list[LocalWorld], resident: int) -> bool:
        """Adapt the limit of a job to its present ranks; return whether the job exceeds the limit.

        A lower limit is set only once the job uses no more than that. Otherwise the last ranks of a
        job would be killed for memory that ended ranks have left allocated, such as shared memory.

        Args:
            key: the number of the job, and the number of its present execution.
            worlds: the sets of ranks of the job on this node.
            resident: the sum of the resident memory of its processes, in bytes.
        """
        ranks = sum(len(world.live_processors) for world in worlds)
        wanted = worlds[0].request.memory_per_rank_bytes * ranks
        limit = self._limits[key] or max(world.request.memory_bytes for world in worlds)
        # Summing the resident memory is cheap, but counts shared memory several times.
        used = resident if resident <= min(wanted, limit) else _proportional_bytes(worlds)
        if wanted and (wanted > limit or used <= wanted):
            # Also if it seems to be the same: a shim that joined since then has raised it.
            memory_limit.change(memory_limit.group_name(*key, self._state), wanted)
            limit = wanted
        self._limits[key] = limit
        return used > limit


def _proportional_bytes(worlds: Iterable[LocalWorld]) -> int:
    """Return the bytes of memory that a job uses here, with shared memory counted only once.

    Args:
        worlds: the sets of ranks of the job on this node.
    """
    shims = [world.shim for world in worlds if world.shim is not None]
    pids = [pid for shim in shims for pid in procfs.descendants(shim.pid)]
    # That of another user's process cannot be read; then only its private memory counts.
    return sum(procfs.proportional_bytes(pid) or procfs.private_bytes(pid) for pid in pids)


@cache
def _default_limit() -> int:
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        return int(file.read()) // 2

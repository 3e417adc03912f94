"""The load of this node: memory and major page faults of its jobs, measured periodically."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pliant.nodectl.host import procfs
from pliant.nodectl.host.node_memory import free_memory
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.protos import node_pb2 as wire

#: Rates of faults are averages over this many seconds, or over one interval if that is longer.
WINDOW_S = 5.0

#: A run of a job on this node, with the shim of one of its worlds.
ShimOfJob = tuple[int, int, ProcessIdentity]


@dataclass(slots=True)
class _JobMeter:
    """The memory and page faults of a job on this node since the job's last start or restart."""

    #: The most bytes that its processes have had in memory and swap together. A job that loses
    #: pages all the time never has all of them, so the present number says less than the largest.
    demand: int = 0
    #: Major faults since the first measurement of the run. They never decrease.
    faults: int = 0
    #: Earlier measurements: seconds of the monotonic clock, and faults.
    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def rate(self) -> float:
        """Return the major page faults per second between the first and the last sample kept."""
        (first, before), (last, after) = self.samples[0], self.samples[-1]
        return (after - before) / (last - first) if last > first else 0.0


class LoadMeter:
    """Measures the memory of the jobs on this node; keeps the last counters to compute rates.

    Args:
        memory: bytes that jobs may use on this node.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._jobs: dict[tuple[int, int], _JobMeter] = {}
        #: The runs that had processes at the last measurement.
        self._live: set[tuple[int, int]] = set()
        #: Faults of each shim's former worlds, by the shim and the run that it serves now.
        self._before: dict[ShimOfJob, int] = {}

    def measure(self, shims: Iterable[ShimOfJob], now: float, interval_s: float) -> wire.Load:
        """Return the memory and the major page faults of the jobs on this node.

        Args:
            shims: for each shim here, the number of the job, the number of the job's run (it counts
                its starts and restarts), and the process.
            now: seconds of the monotonic clock.
            interval_s: seconds until the next measurement.
        """
        has_swap = procfs.has_swap()
        resident: dict[tuple[int, int], int] = {}
        faults: dict[tuple[int, int], int] = {}
        before: dict[ShimOfJob, int] = {}
        for each in shims:
            job, run, shim = each
            key = (job, run)
            stat = procfs.read_stat(shim.pid)
            # Before the descendants: a process that ends in between is then missed once, instead of
            # being counted twice, and the sum does not rise too high.
            ended = stat.child_major_faults if stat is not None else 0
            before[each] = self._before.get(each, ended)
            used, own_faults = _sums(shim.pid, has_swap=has_swap)
            resident[key] = resident.get(key, 0) + used
            faults[key] = faults.get(key, 0) + own_faults + ended - before[each]
        self._before = before
        # A world is known for a while after its processes have exited.
        live = {key for key, used in resident.items() if used}
        has_left = not self._live <= live
        self._live = live
        self._jobs = {key: self._jobs.get(key) or _JobMeter() for key in resident}
        for key, meter in self._jobs.items():
            meter.demand = max(meter.demand, resident[key])
            meter.faults = max(meter.faults, faults[key])
            if has_left:
                # Perhaps the other jobs had faults only because of the job that has left.
                meter.samples.clear()
            meter.samples.append((now, meter.faults))
            while len(meter.samples) > 2 and meter.samples[1][0] <= now - WINDOW_S:
                meter.samples.popleft()
        return self._report(sum(resident.values()), interval_s)

    def _report(self, resident: int, interval_s: float) -> wire.Load:
        free = free_memory()
        jobs = [
            wire.JobLoad(
                job=key[0],
                demand_bytes=meter.demand,
                major_faults=meter.faults,
                fault_rate=meter.rate(),
            )
            for key, meter in sorted(self._jobs.items(), key=lambda item: item[0])
            if key in self._live
        ]
        return wire.Load(
            # Programs that are no jobs may use the memory of the node, too.
            memory_bytes=min(self._memory, resident + free.available),
            fault_rate=sum(job.fault_rate for job in jobs),
            pressure=free.pressure,
            interval_s=interval_s,
            jobs=jobs,
        )


def _sums(shim: int, *, has_swap: bool) -> tuple[int, int]:
    """Return the bytes in memory and swap, and the major faults, of a shim's descendants.

    The faults include those of children that have ended and were waited for.
    """
    used = faults = 0
    for pid in procfs.descendants(shim):
        stat = procfs.read_stat(pid)
        if stat is not None:
            used += stat.resident_bytes + (procfs.swapped_bytes(pid) if has_swap else 0)
            faults += stat.major_faults + stat.child_major_faults
    return used, faults

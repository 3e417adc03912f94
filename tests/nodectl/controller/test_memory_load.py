"""The memory load that a node measures, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pliant.nodectl.controller.memory_load import LoadMeter
from pliant.nodectl.host import procfs
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.protos import node_pb2 as wire

MEBIBYTE = 1 << 20

#: The parent stands for a shim. Its child holds memory, then ends when it reads a line.
PARENT = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "x = b'1' * (64 << 20); print('up', flush=True); input()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
child.stdout.readline()
print("up", flush=True)
input()
child.communicate("\\n")
print("gone", flush=True)
input()
"""

Shim = subprocess.Popen[str]


@pytest.fixture
def shim() -> Iterator[Shim]:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        with suppress(BrokenPipeError):
            process.communicate("\n\n")


def identity(process: Shim) -> ProcessIdentity:
    found = ProcessIdentity.of(process.pid)
    assert found is not None
    return found


def go_on(process: Shim) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_the_demand_ends_with_the_processes(shim: Shim) -> None:
    meter = LoadMeter(1 << 60)
    here = [(7, 1, identity(shim))]
    (first,) = meter.measure(here, 0.0, 1.0).jobs
    assert first.job == 7
    assert first.demand_bytes > 64 * MEBIBYTE
    assert go_on(shim) == "gone\n"
    # Its processes have exited, and nobody has told the controller yet.
    assert not meter.measure(here, 1.0, 1.0).jobs
    assert not meter.measure([], 2.0, 1.0).jobs


def test_memory_is_limited_by_the_node_and_by_what_is_free(shim: Shim) -> None:
    small = LoadMeter(100 * MEBIBYTE).measure([(7, 1, identity(shim))], 0.0, 1.0)
    assert small.memory_bytes == 100 * MEBIBYTE
    large = LoadMeter(1 << 60).measure([(7, 1, identity(shim))], 0.0, 1.0)
    assert (
        large.memory_bytes
        < os.sysconf("SC_PHYS_PAGES") * procfs.PAGE_BYTES + large.jobs[0].demand_bytes
    )


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let process 1 be a shim with process 2; return a function that sets their faults."""
    stats: dict[int, procfs.Stat | None] = {}

    def set_faults(child: int | None, ended: int) -> None:
        stats[1] = procfs.Stat("S", 0, 1, 0, 1, 0, ended)
        stats[2] = None if child is None else procfs.Stat("S", 1, 1, child, 1, 4096, 0)
        stats[3] = procfs.Stat("S", 1, 1, 0, 1, 4096, 0)
        # Another shim, whose job has one process
        stats[4], stats[5] = procfs.Stat("S", 0, 4, 0, 1, 0, 0), stats[3]

    def descendants(pid: int) -> list[int]:
        if pid == 4:
            return [5]
        return [2, 3] if stats[2] is not None else [3]

    monkeypatch.setattr(procfs, "read_stat", lambda pid: stats[pid])
    monkeypatch.setattr(procfs, "descendants", descendants)
    return set_faults


def job_of(load: wire.Load) -> tuple[int, float]:
    (job,) = load.jobs
    assert load.fault_rate == job.fault_rate
    return job.major_faults, job.fault_rate


def test_faults_never_decrease_when_processes_end(faults: Callable[..., None]) -> None:
    meter, here = LoadMeter(1 << 30), [(1, 1, ProcessIdentity("", 1, 1))]
    faults(child=100, ended=1000)  # those of an earlier world of the shim do not count
    assert job_of(meter.measure(here, 0.0, 1.0)) == (100, 0.0)
    faults(child=150, ended=1000)
    assert job_of(meter.measure(here, 1.0, 1.0)) == (150, 50.0)
    faults(child=None, ended=1000)  # it has ended, and the shim has not waited for it yet
    assert job_of(meter.measure(here, 2.0, 1.0)) == (150, 25.0)
    faults(child=None, ended=1170)
    total, rate = job_of(meter.measure(here, 3.0, 1.0))
    assert (total, round(rate, 3)) == (170, 23.333)


def test_the_rate_is_that_of_the_last_seconds(faults: Callable[..., None]) -> None:
    meter, here = LoadMeter(1 << 30), [(1, 1, ProcessIdentity("", 1, 1))]
    for second in range(20):
        faults(child=1000 * min(second, 10), ended=0)
        load = meter.measure(here, float(second), 1.0)
        if second == 10:
            assert job_of(load) == (10_000, 1000.0)
    assert job_of(load) == (10_000, 0.0)


def test_the_demand_is_the_largest_so_far(
    faults: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that loses pages all the time never has all of them."""
    faults(child=0, ended=0)
    shim, swapped = ProcessIdentity("", 1, 1), [100, 300, 200]
    monkeypatch.setattr(procfs, "has_swap", lambda: True)
    monkeypatch.setattr(procfs, "swapped_bytes", lambda pid: swapped[0] if pid == 2 else 0)
    meter = LoadMeter(1 << 30)
    found = []
    while swapped:
        found.append(meter.measure([(1, 1, shim)], 0.0, 1.0).jobs[0].demand_bytes - 2 * 4096)
        swapped.pop(0)
    assert found == [100, 300, 300]
    swapped.append(50)
    (again,) = meter.measure([(1, 2, shim)], 1.0, 1.0).jobs  # another run
    assert again.demand_bytes - 2 * 4096 == 50


def test_the_window_begins_again_when_another_job_has_left(faults: Callable[..., None]) -> None:
    """It may have caused the faults. Its world may be known longer than its processes."""
    meter = LoadMeter(1 << 30)
    one, other = (1, 1, ProcessIdentity("", 1, 1)), (2, 1, ProcessIdentity("", 4, 1))
    faults(child=0, ended=0)
    assert [job.job for job in meter.measure([one, other], 0.0, 1.0).jobs] == [1, 2]
    faults(child=500, ended=0)
    assert meter.measure([one, other], 1.0, 1.0).fault_rate == 500.0
    faults(child=600, ended=0)
    assert job_of(meter.measure([one], 2.0, 1.0)) == (600, 0.0)
    faults(child=610, ended=0)
    assert job_of(meter.measure([one], 3.0, 1.0)) == (610, 10.0)


def test_a_job_without_processes_demands_nothing(faults: Callable[..., None]) -> None:
    faults(child=0, ended=0)
    meter, shim = LoadMeter(1 << 30), ProcessIdentity("", 9, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(procfs, "descendants", lambda _: [])
        patch.setattr(procfs, "read_stat", lambda _: None)
        assert list(meter.measure([(1, 1, shim)], 1.0, 1.0).jobs) == []


def test_a_real_major_fault_is_counted(tmp_path: Path) -> None:
    """A process that maps a file which is not in memory has major faults."""
    data = tmp_path / "data"
    data.write_bytes(b"1" * (4 * MEBIBYTE))
    code = (
        "import mmap, os, sys\n"
        "handle = os.open(sys.argv[1], os.O_RDWR)\n"
        "os.fsync(handle)\n"
        "os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)\n"
        "view = mmap.mmap(handle, 0)\n"
        "view.madvise(mmap.MADV_RANDOM)\n"
        "print('mapped', flush=True)\n"
        "input()\n"
        "total = sum(view[i] for i in range(0, len(view), mmap.PAGESIZE))\n"
        "print('read', flush=True)\n"
        "input()\n"
    )
    parent = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {code!r}, sys.argv[1]], check=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mapped\n"
        meter, here = LoadMeter(1 << 60), [(1, 1, identity(process))]
        before = meter.measure(here, 0.0, 1.0).jobs[0].major_faults
        assert go_on(process) == "read\n"
        found = meter.measure(here, 1.0, 1.0).jobs[0]
        process.communicate("\n")
    if found.major_faults == before:
        pytest.skip("the file system of the temporary folder keeps its files in memory")
    assert found.major_faults - before > 100
    assert found.fault_rate > 100

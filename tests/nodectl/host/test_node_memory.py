"""The memory that jobs may use on a node."""

from __future__ import annotations

from pathlib import Path

import psutil

from pliant.nodectl.host.node_memory import FreeMemory, free_memory, usable_memory

TOTAL = psutil.virtual_memory().total


def groups(tmp_path: Path, line: str, limits: dict[str, str]) -> int:
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(line + "\n")
    return usable_memory(str(tmp_path / "own"), tmp_path)


def test_the_smallest_limit_of_the_groups_above_holds(tmp_path: Path) -> None:
    limits = {"a/memory.max": "4096\n", "a/b/memory.max": "max\n", "x/memory.max": "1\n"}
    assert groups(tmp_path, "0::/a/b", limits) == 4096


def test_version_1(tmp_path: Path) -> None:
    limits = {"memory/a/memory.limit_in_bytes": "8192", "memory/memory.limit_in_bytes": "9" * 19}
    assert groups(tmp_path, "3:cpu,memory:/a\n0::/", limits) == 8192


def test_without_limits_it_is_that_of_the_host(tmp_path: Path) -> None:
    assert groups(tmp_path, "0::/", {}) == TOTAL
    assert usable_memory(str(tmp_path / "missing"), tmp_path) == TOTAL
    assert groups(tmp_path, "0::/../..", {"memory.max": "nonsense"}) == TOTAL


def free(tmp_path: Path, line: str, files: dict[str, str]) -> FreeMemory:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(line + "\n")
    return free_memory(str(tmp_path / "own"), tmp_path, tmp_path)


PRESSURE = "some avg10={} avg60=0.00 avg300=0.00 total=9\nfull avg10=9.00 avg60=0.00 total=1\n"


def test_free_memory_in_a_limited_group_of_version_2_is_that_of_the_group(tmp_path: Path) -> None:
    files = {
        "a/memory.max": "1000000",
        "a/memory.current": "900000",
        "a/memory.stat": "anon 600000\ninactive_file 200000\nactive_file 50000\n",
        "a/memory.pressure": PRESSURE.format("12.50"),
        "pressure/memory": PRESSURE.format("99.00"),
    }
    assert free(tmp_path, "0::/a", files) == FreeMemory(350_000, 12.5)


def test_groups_of_version_1_have_no_pressure(tmp_path: Path) -> None:
    files = {
        "memory/a/memory.limit_in_bytes": "1000000",
        "memory/a/memory.usage_in_bytes": "2000000",
        "memory/a/memory.stat": "total_inactive_file 1\nactive_file 999\ntotal_active_file 9\n",
        "pressure/memory": PRESSURE.format("99.00"),
    }
    assert free(tmp_path, "3:memory:/a", files) == FreeMemory(0, None)


def test_without_a_limit_memory_and_pressure_are_those_of_the_host(tmp_path: Path) -> None:
    found = free(tmp_path, "0::/", {"pressure/memory": PRESSURE.format("3.25")})
    assert 0 < found.available <= TOTAL
    assert found.pressure == 3.25
    (tmp_path / "pressure/memory").unlink()
    assert free_memory(str(tmp_path / "own"), tmp_path, tmp_path).pressure is None

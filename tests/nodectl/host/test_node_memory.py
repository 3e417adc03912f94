"""The memory that jobs may use on a node."""

from __future__ import annotations

from pathlib import Path

import psutil

from pliant.nodectl.host.node_memory import usable_memory

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

"""Where the groups of a process are, by what the kernel says about mounts and groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.nodectl.host import cgroup_hierarchies
from pliant.nodectl.host.cgroup_hierarchies import Base, locate, parse_groups, parse_mounts

HYBRID = """\
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/unified rw shared:1 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/memory rw shared:2 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/cpu,cpuset rw - cgroup cgroup rw,cpu,cpuset
"""
UNIFIED = "31 30 0:27 / /sys/fs/cgroup rw shared:1 - cgroup2 cgroup2 rw\n"
#: A container without a namespace of groups: the mount shows only a part of the hierarchy.
PART = "32 30 0:28 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("mounts", "groups", "controller", "found"),
    [
        (HYBRID, "4:memory:/jobs\n0::/\n", "memory", Base(1, "/sys/fs/cgroup/memory/jobs")),
        (HYBRID, "3:cpu,cpuset:/\n0::/a\n", "cpuset", Base(1, "/sys/fs/cgroup/cpu,cpuset")),
        (HYBRID, "4:memory:/jobs\n0::/a:b\n", "", Base(2, "/sys/fs/cgroup/unified/a:b")),
        (UNIFIED, "0::/jobs/1\n", "", Base(2, "/sys/fs/cgroup/jobs/1")),
        (UNIFIED, "0::/jobs/1\n", "memory", None),
        (PART, "4:memory:/docker/1/x\n", "memory", Base(1, "/sys/fs/cgroup/memory/x")),
        (PART, "4:memory:/docker/12\n", "memory", None),
        ("", "", "", None),
    ],
)
def test_where_the_group_of_a_process_is(
    mounts: str, groups: str, controller: str, found: Base | None
) -> None:
    assert locate(controller, parse_mounts(mounts), parse_groups(groups)) == found


def test_a_mount_hides_an_earlier_one_in_the_same_place() -> None:
    over = "40 32 0:28 /host /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    (memory,) = [each for each in parse_mounts(HYBRID + over) if "memory" in each.controllers]
    assert memory.root == "/host"


def test_a_controller_alone_in_its_group_moves_into_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of plain files: the kernel of a test machine may have no controllers in version 2."""
    group = tmp_path / "unit"
    group.mkdir()
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (group / "cgroup.type").write_text("domain\n")
    (group / "cgroup.controllers").write_text("cpuset memory pids\n")
    where = [Base(2, str(group))]
    monkeypatch.setattr(cgroup_hierarchies, "own_group", lambda name: None if name else where[0])
    cgroup_hierarchies.base.cache_clear()
    try:
        cgroup_hierarchies.enable_controllers()
        child = group / cgroup_hierarchies.CONTROLLER_GROUP
        assert (child / "cgroup.procs").read_text() == "0"
        where[0] = Base(2, str(child))  # as the kernel says now
        assert cgroup_hierarchies.base("") == Base(2, str(group))
        assert cgroup_hierarchies.base("memory") == Base(2, str(group))
        assert cgroup_hierarchies.base("devices") is None
    finally:
        cgroup_hierarchies.base.cache_clear()


def test_a_controller_that_is_not_alone_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    (tmp_path / "cgroup.type").write_text("domain\n")
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    monkeypatch.setattr(
        cgroup_hierarchies, "own_group", lambda name: None if name else Base(2, str(tmp_path))
    )
    cgroup_hierarchies.enable_controllers()
    assert not (tmp_path / cgroup_hierarchies.CONTROLLER_GROUP).exists()

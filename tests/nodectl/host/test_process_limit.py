"""The tasks of a job are limited by the kernel, so that others can go on."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.host import cgroup
from pliant.nodectl.host.cgroup_hierarchies import Base, base
from pliant.nodectl.host.process_limit import task_limit
from pliant.nodectl.host.procfs import ProcessIdentity
from testkit import run_python, wait_until

#: Becomes a shim of three tasks and tells how many children it can have at the same time.
SHIM = """
import os, sys
from pliant.nodectl.host import cgroup
from pliant.nodectl.host.procfs import ProcessIdentity
me = ProcessIdentity.of(os.getpid())
cgroup.enter()
if not cgroup.limit_tasks(me, 4):
    print("none")
    sys.exit()
reads, writes = os.pipe()
pids = []
try:
    for _ in range(50):
        pid = os.fork()
        if pid == 0:
            os.close(writes)
            os.read(reads, 1)
            os._exit(0)
        pids.append(pid)
except BlockingIOError:
    pass
os.close(writes)
for pid in pids:
    os.waitpid(pid, 0)
cgroup.leave()
print(len(pids), me.pid)
"""

#: The same for a rank of an account with a limit.
RANK = """
import resource
from pliant.nodectl.host.process_limit import reserve_processes
resource.setrlimit(resource.RLIMIT_NPROC, ({soft}, {hard}))
reserve_processes()
print(*resource.getrlimit(resource.RLIMIT_NPROC))
"""


def groups(shim: int) -> list[str]:
    """Return the groups of a shim; other tests may run shims at the same time."""
    homes = [base.folder for base in cgroup.bases()]
    prefix = f"pliant-shim-{shim}-"
    return [name for home in homes for name in os.listdir(home) if name.startswith(prefix)]


@pytest.mark.cluster
def test_a_shim_and_its_ranks_have_no_more_tasks_than_they_may() -> None:
    said = run_python("-c", SHIM).stdout.split()
    if said == ["none"]:
        pytest.skip("the pids controller cannot be used here")
    started, shim = map(int, said)
    assert started == 3
    assert groups(shim) == []


@pytest.mark.cluster
@pytest.mark.skipif(
    base("pids") is None or base("pids") == base(""),
    reason="no hierarchy (v1) of the pids controller here",
)
@pytest.mark.parametrize("node", [("--most-processes", "60")], indirect=True)
def test_the_ranks_of_a_job_are_where_the_limit_is(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    command = "cat /proc/self/cgroup; exec sleep 0.2"
    world = World(["sh", "-c", command], tmp_path / "out", type="uni")
    world.start(server)
    wait_until(lambda: (tmp_path / "out").exists() and "pids" in (tmp_path / "out").read_text())
    pids = base("pids")
    assert pids is not None
    folder = cgroup.group_of(pids, node.shim(world))
    assert f"pids:{folder.removeprefix('/sys/fs/cgroup/pids')}" in (tmp_path / "out").read_text()
    assert int(Path(folder, "pids.max").read_text()) == task_limit(60)
    assert [end.code for end in world.ends(server)] == [0]


def test_in_a_delegated_v2_hierarchy_the_limit_is_in_the_group_of_the_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree of plain files: the kernel's has the pids controller in one hierarchy only."""
    shim = ProcessIdentity.of(os.getpid())
    assert shim is not None
    monkeypatch.setattr(cgroup, "base", lambda _: Base(2, str(tmp_path)))
    assert cgroup.enter()
    group = tmp_path / f"pliant-shim-{shim.pid}-{shim.start}"
    assert (group / "cgroup.procs").read_text() == "0"
    assert not cgroup.limit_tasks(shim, 300), "the controller is not delegated"
    (group / "pids.max").write_text("max")
    assert cgroup.limit_tasks(shim, 300)
    assert (group / "pids.max").read_text() == "300"


def test_the_limit_is_above_the_processes_of_a_job_and_below_those_of_the_kernel() -> None:
    ids = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert 60 < task_limit(60) < ids
    assert task_limit(10 * ids) == task_limit(0) < ids


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [(1000, 1000, "936 936"), (1000, 2000, "936 2000"), (80, 80, "70 70")],
)
def test_ranks_leave_some_processes_to_the_daemons(soft: int, hard: int, then: str) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if allowed != resource.RLIM_INFINITY and os.geteuid() != 0:
        pytest.skip("this account has a limit already")
    assert run_python("-c", RANK.format(soft=soft, hard=hard)).stdout.strip() == then

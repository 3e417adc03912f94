"""The control groups of a world that the helper starts belong to root, not to its user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helperkit import FakeController, Helper, needs_root
from helperkit.helper import ACCOUNT
from helperkit.identity import acting_as
from pliant.nodectl.host import cgroup, procfs
from pliant.nodectl.host.cgroup_hierarchies import base
from testkit import wait_until

pytestmark = [needs_root, pytest.mark.timeout(180)]

MEBIBYTE = 1 << 20


@pytest.mark.skipif(
    base("cpuset") is None or not {0, 1} <= os.sched_getaffinity(0),
    reason="no cpuset of CPUs 0 and 1 can be made here",
)
def test_a_user_cannot_leave_the_cpus_of_the_job(
    helper: Helper, controller: FakeController
) -> None:
    code = "taskset -c 1 true && echo left; grep Cpus_allowed_list /proc/self/status; sleep 600"
    request = helper.request(argv=["/bin/sh", "-c", code])
    request.cpus = [[0]]
    shim = helper.start_world(request)
    output = Path(request.stdout)
    wait_until(lambda: output.exists() and "Cpus" in output.read_text(), what="the output")
    assert "left" not in output.read_text()
    assert output.read_text().splitlines()[-1].split() == ["Cpus_allowed_list:", "0"]
    where = base("cpuset")
    assert where is not None
    file = Path(cgroup.group_of(where, shim), "cpuset.cpus")
    assert file.stat().st_uid == 0
    # After a resize, the controller names other CPUs.
    with acting_as(ACCOUNT):
        assert helper.client().controllers()["cpuset"] == f"cgroup v{where.version}"
        assert helper.client().limit_cpus(request.world, [0, 1])
        assert not helper.client().limit_cpus("9.1.0", [0])
    assert file.read_text() == "0-1\n"
    (rank,) = procfs.children(shim.pid)
    os.kill(rank, 9)
    controller.finish(controller.accept())
    wait_until(lambda: not file.exists(), what="the end of the group")


@pytest.mark.skipif(base("memory") is None, reason="no group with a limit of memory here")
def test_a_job_of_a_user_ends_at_its_limit_of_memory(
    helper: Helper, controller: FakeController
) -> None:
    where = base("memory")
    assert where is not None
    before = os.listdir(where.folder)
    request = helper.request(argv=["/usr/bin/tail", "/dev/zero"])
    request.memory_bytes, request.node_name = 64 * MEBIBYTE, "n7"
    helper.start_world(request)
    (end,) = controller.finish(controller.accept())
    assert (end["signal"], end["reason"]) == (9, "out of memory (limit 64 MiB on node n7)")
    wait_until(lambda: not helper.started(), what="the end of the subreaper")
    wait_until(lambda: os.listdir(where.folder) == before, what="the end of the group")

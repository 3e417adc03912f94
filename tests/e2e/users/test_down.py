"""`pliant down` when nobody is left that could end jobs in order."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from clusterkit.cluster import Cluster, gone
from clusterkit.commands import run_command
from pliant.nodectl.host import cgroup
from testkit import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(150),
]

#: A process in a session of its own, with an environment of its own, whose parent has ended.
HIDES = "setsid env -i sh -c 'sleep 600 & echo $! > new; mv new hidden'; exec sleep 600"


@pytest.mark.skipif(not cgroup.bases(), reason="no control groups can be made here")
def test_down_ends_what_hides_when_all_daemons_and_shims_were_killed(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(state_dir.parent, nodes=2, slots=2, strategy="fcfs")
    cluster.up()
    monkeypatch.chdir(tmp_path)
    job = cluster.client.submit("sh", "-c", HIDES, sizes=1, stdout="/dev/null")
    wait_until((tmp_path / "hidden").exists, what="a process that hides")
    hidden = psutil.Process(int((tmp_path / "hidden").read_text()))
    shims = {parent for rank in cluster.ranks(job) for parent in rank.process.parents()}
    daemons = set(cluster.daemons().values())
    me = {psutil.Process(), *psutil.Process().parents()}
    for process in sorted((daemons | shims) - me, key=lambda each: each.pid):
        os.kill(process.pid, signal.SIGKILL)
    assert hidden.is_running()
    said = run_command("pliant", "down", timeout=60)
    assert said.code == 0, said
    assert said.out == "down: all is gone\n"
    assert gone(hidden)
    cluster.up()
    ended = cluster.wait_for(job, lambda each: each.final, "the next cluster to know of its end")
    cluster.down()
    assert ended.state == "FAILED"
    assert ended.reason.startswith("its node was taken down on ")


@pytest.mark.parametrize(
    "program", ["touch up; exec sleep 600", "trap '' TERM; touch up; sleep 600"]
)
def test_a_job_that_down_has_ended_without_a_server_says_so(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    cluster = Cluster(state_dir.parent, nodes=1, slots=2, strategy="fcfs")
    cluster.up()
    monkeypatch.chdir(tmp_path)
    job = cluster.client.submit("sh", "-c", program, sizes=1, stdout="/dev/null")
    wait_until((tmp_path / "up").exists, what="its process")
    for pid in cluster.daemons().values():
        os.kill(pid.pid, signal.SIGKILL)
    said = run_command("pliant", "down", timeout=60)
    assert (said.code, said.out) == (0, "down: all is gone\n"), said
    assert "1 job could not be cancelled (1): no server answered" in said.err
    cluster.up()
    ended = cluster.wait_for(job, lambda each: each.final, "the next cluster to know of its end")
    cluster.down()
    assert ended.state == "FAILED"
    assert ended.reason.startswith("its shim was told to end, as by `pliant down` where no server")

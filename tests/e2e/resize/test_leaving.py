"""Ranks that leave a job and do not exit: the job continues, and they are killed in the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from testkit import wait_until
from testkit.repository import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]

PROGRAM = ROOT / "tests" / "e2e" / "apps" / "stayer.py"
#: A loaded machine resizes a job long before the deadline.
SETTINGS = "quiet_s: 600\nrelease_timeout_s: 1\nresize_deadline_s: 30\n"


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", SETTINGS, nodes=3) as cluster:
        yield cluster


def test_a_job_continues_while_ranks_that_left_it_stay(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.client.submit(
        *(sys.executable, str(PROGRAM), str(tmp_path)),
        sizes="1-6",
        prefer=4,
        type="mpi",
        stdout=str(tmp_path / "out"),
    )
    cluster.wait_malleable(job)
    ranks = cluster.ranks(job)
    node = ranks[-1].node
    staying = [rank.process for rank in ranks if rank.node == node]
    assert len(staying) == 2
    cluster.resize(job, 2, release=[node])
    found = cluster.client.job(job)
    assert (found.state, found.processors, found.held) == ("RUNNING", 2, 4)
    assert f"2 leaving ranks ({node}/0, {node}/1) not gone 1 s after" in found.reason
    assert all(process.is_running() for process in staying)
    for place in ("after the loop", "at exit"):
        wait_until((tmp_path / place).exists, what=f"a rank that stays {place}")

    cluster.resize(job, 4)  # on the third node: the processors of ranks that stay are not free
    members = [rank for rank in cluster.ranks(job) if rank.process not in staying]
    assert len(members) == 4
    assert node not in {rank.node for rank in members}
    cluster.wait_for(job, lambda job: (job.state, job.held) == ("RUNNING", 4), "processors back")
    wait_until(lambda: not any(process.is_running() for process in staying), what="killed ranks")
    warnings = [event.text for event in cluster.history(job, "job.warning")]
    assert "leaving ranks that did not exit are killed" in warnings
    assert sum(node.used for node in cluster.client.nodes()) == 4

    cluster.resize(job, 6)  # with the processors that came back
    (tmp_path / "stop").touch()
    ended = cluster.wait_for(job, lambda job: job.final, "the end of the job")
    assert (ended.state, ended.exit_code) == ("COMPLETED", 0), cluster.report(job)

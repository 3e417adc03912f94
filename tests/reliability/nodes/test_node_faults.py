"""Case 47: a node that cannot write its spool swallows no jobs. Its full disk needs root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from clusterkit.disks import fill, small_disk
from clusterkit.logs import Logs
from testkit.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

JOBS = 12


@pytest.fixture
def disk(state_dir: Path) -> Iterator[Path]:
    """Put the folder of the first node on a small file system; skip where that is not allowed."""
    folder = state_dir / "node-n1"
    folder.mkdir(mode=0o700)
    with small_disk(folder, "1m") as disk:
        yield disk


@pytest.fixture
def cluster(disk: Path) -> Iterator[Cluster]:
    cluster = Cluster(disk.parent.parent, nodes=2, slots=2, strategy="fcfs")
    cluster.up()
    yield cluster
    idle(cluster)
    cluster.down()
    Logs(cluster.state).check()


@pytest.mark.case(47)
def test_a_node_without_room_gets_no_more_and_its_jobs_run_elsewhere(
    cluster: Cluster, disk: Path
) -> None:
    client = cluster.client
    ballast = fill(disk)
    jobs = [
        client.submit("/bin/sh", "-c", "sleep 0.1", stdout="/dev/null", requeue=False)
        for _ in range(JOBS)
    ]
    ended = [cluster.wait_for(job, lambda job: job.final, "a job to end") for job in jobs]
    assert [job.state for job in ended] == ["COMPLETED"] * JOBS
    full, other = sorted(client.nodes(), key=lambda node: node.name)
    assert (full.state, other.state) == ("DRAINED", "UP")
    assert full.reason.startswith(
        f"cannot start jobs: spool {disk}/spool: No space left on device; make room"
    )
    ballast.unlink()
    # Nobody resumes it: it finds out by itself.
    wait_until(lambda: {node.state for node in client.nodes()} == {"UP"}, timeout=120)
    both = client.submit("true", sizes=4, stdout="/dev/null")
    assert cluster.wait_for(both, lambda job: job.final, "a job").state == "COMPLETED"

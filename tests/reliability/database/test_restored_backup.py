"""A server that is restored from its backup takes over the jobs that still run."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from pliant.server.backup.backup_commands import backup, restore
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def test_jobs_that_run_are_taken_over(state_dir: Path, tmp_path: Path) -> None:
    cluster = Cluster(state_dir.parent, nodes=2, slots=2, strategy="fcfs")
    cluster.up()
    try:
        job = cluster.client.submit("sleep", "600", sizes=4, type="mpi", stdout="/dev/null")
        cluster.wait_for(job, lambda found: found.state == "RUNNING", "the job to run")
        file = tmp_path / "backup.tar"
        assert backup([str(file), "--state-dir", str(cluster.state)]) == 0
        ranks = {rank.process.pid for rank in cluster.ranks(job)}
        cluster.kill("server")
        words = [str(file), "--state-dir", str(cluster.state), "--replace"]
        # Threads of a killed server may end after its first one, and hold the lock until then.
        wait_until(lambda: restore(words) == 0, every=0.2, what="the restored state")
        cluster.up()
        after = cluster.client.submit("true", sizes=1, stdout="/dev/null")
        assert after > job + 1
        assert cluster.client.job(job).state == "RUNNING"
        assert {rank.process.pid for rank in cluster.ranks(job)} == ranks
        cluster.client.cancel(job)
        cluster.wait_for(after, lambda found: found.state == "COMPLETED", "a job afterwards")
        idle(cluster)
    finally:
        cluster.down()

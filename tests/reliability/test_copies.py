"""Case 31: an older copy of the database is put back where jobs run that wait in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from testkit.afterwards import idle
from testkit.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    ("nodes", "slots"), [(2, 2), (1, 4)], ids=["no room meanwhile", "room beside them"]
)
def test_case_31_what_runs_unknown_to_the_copy_is_ended_and_others_run(
    state_dir: Path, tmp_path: Path, nodes: int, slots: int
) -> None:
    cluster = Cluster(state_dir.parent, nodes=nodes, slots=slots, strategy="fcfs")
    cluster.up()
    try:
        size = nodes * slots if nodes > 1 else slots // 2
        client = cluster.client
        first = client.submit("sleep", "600", sizes=nodes * slots, type="mpi", stdout="/dev/null")
        second = client.submit("sleep", "600", sizes=size, type="mpi", stdout="/dev/null")
        cluster.wait_for(first, lambda job: job.state == "RUNNING", "the first to run")
        copy = tmp_path / "copy.db"
        with (
            closing(sqlite3.connect(cluster.state / "pliant.db")) as one,
            closing(sqlite3.connect(copy)) as other,
        ):
            one.backup(other)
        client.cancel(first)
        cluster.wait_for(second, lambda job: job.state == "RUNNING", "the second to run")

        cluster.kill("server")
        for part in cluster.state.glob("pliant.db*"):
            part.unlink()
        copy.rename(cluster.state / "pliant.db")
        cluster.up()
        after = cluster.client.submit("true", sizes=1, stdout="/dev/null")
        cluster.wait_for(after, lambda job: job.state == "COMPLETED", "one that came afterwards")
        cluster.wait_for(second, lambda job: job.final, "the end of what is not run twice")
        assert cluster.client.job(second).state == "FAILED"
        assert [node.used for node in cluster.client.nodes()] == [0] * nodes
        idle(cluster)
    finally:
        cluster.down()

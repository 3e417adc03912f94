"""Case 31: an older copy of the database is put back where jobs run that wait in it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def backup(cluster: Cluster, folder: Path) -> Path:
    """Make a copy of the database of a server that runs."""
    copy = folder / "copy.db"
    with (
        closing(sqlite3.connect(cluster.state / "pliant.db")) as one,
        closing(sqlite3.connect(copy)) as other,
    ):
        one.backup(other)
    return copy


def put_back(cluster: Cluster, copy: Path) -> None:
    """Have the next server on the copy."""
    cluster.kill("server")
    for part in cluster.state.glob("pliant.db*"):
        part.unlink()
    shutil.copy(copy, cluster.state / "pliant.db")
    cluster.up()


@pytest.mark.case(31)
@pytest.mark.parametrize(
    ("nodes", "slots"), [(2, 2), (1, 4)], ids=["no room meanwhile", "room beside them"]
)
def test_what_runs_unknown_to_the_copy_is_ended_and_others_run(
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
        copy = backup(cluster, tmp_path)
        client.cancel(first)
        cluster.wait_for(second, lambda job: job.state == "RUNNING", "the second to run")

        put_back(cluster, copy)
        after = cluster.client.submit("true", sizes=1, stdout="/dev/null")
        cluster.wait_for(after, lambda job: job.state == "COMPLETED", "one that came afterwards")
        cluster.wait_for(second, lambda job: job.final, "the end of what is not run twice")
        assert cluster.client.job(second).state == "FAILED"
        assert [node.used for node in cluster.client.nodes()] == [0] * nodes
        idle(cluster)
    finally:
        cluster.down()


@pytest.mark.case(31)
def test_another_run_is_not_taken_for_one_that_the_copy_does_not_know(
    state_dir: Path, tmp_path: Path
) -> None:
    cluster = Cluster(state_dir.parent, nodes=2, slots=2, strategy="fcfs")
    cluster.up()
    try:
        job = cluster.client.submit(
            "sleep", "600", sizes=2, type="mpi", requeue=True, stdout="/dev/null"
        )
        cluster.wait_for(job, lambda job: job.state == "RUNNING", "its first run")
        copy, runs = backup(cluster, tmp_path), [1]
        for _ in range(2):
            before = cluster.client.job(job).run
            cluster.client.requeue(job)
            runs.append(runs_again(cluster, job, before))
            put_back(cluster, copy)  # which knows of the first run alone
            runs.append(runs_again(cluster, job, 1))
        assert len(set(runs)) == len(runs), "a number was given twice"
        assert len(cluster.ranks(job)) == 2
        idle(cluster)
    finally:
        cluster.down()


def runs_again(cluster: Cluster, number: int, before: int) -> int:
    """Wait for another run of a job than one; its number."""
    found = cluster.wait_for(
        number, lambda job: job.state == "RUNNING" and job.run != before, "another run"
    )
    return found.run

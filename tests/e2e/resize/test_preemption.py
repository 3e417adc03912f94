"""A real job that is suspended for one of higher priority, and goes on to the same result."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.applications import checksum, settings_file
from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from pliant.client.api import Job
from testkit import run_python

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(240)]

HEAT = {"rows": 64, "columns": 32, "iterations": 200, "every": 5, "tolerance": 0.0}
ALL = 2


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("priority+preempt", slots=1, options=["min-run-s=1"]) as cluster:
        yield cluster


def heat(cluster: Cluster, folder: Path, name: str, pause_s: float, priority: int) -> int:
    argv = (
        sys.executable,
        "-m",
        "pliant.examples.heat",
        settings_file("heat", folder, **HEAT, pause_s=pause_s),
    )
    out = str(folder / name)
    return cluster.client.submit(*argv, sizes=str(ALL), stdout=out, priority=priority)


def low_job(cluster: Cluster, folder: Path) -> int:
    """Return a job on all processors that has computed for a while."""
    number = heat(cluster, folder, "low", 0.05, 0)

    def computes(job: Job) -> bool:
        return job.state == "RUNNING" and (job.progress or {}).get("safe_points", 0) > 1

    assert cluster.wait_for(number, computes, "a safe point").processors == ALL
    return number


def check_results(cluster: Cluster, folder: Path, low: int, high: int) -> None:
    """Both have the result of an undisturbed run, and the low one went on from its checkpoint."""
    alone = checksum(
        run_python(
            "-m", "pliant.examples.heat", settings_file("heat", folder, **HEAT, pause_s=0.0)
        ).stdout
    )
    assert cluster.client.wait(high).state == "COMPLETED"
    first, second = cluster.client.wait(high), cluster.client.wait(low)
    assert (second.state, second.exit_code, second.run) == ("COMPLETED", 0, 2)
    assert [checksum((folder / name).read_text()) for name in ("low", "high")] == [alone, alone]
    (saved,) = cluster.history(low, "job.saved")
    assert saved.data["iteration"] > 0
    (gone,) = cluster.history(low, "job.suspended")
    assert gone.text == f"suspended (for job {high})"
    assert first.start is not None
    assert first.end is not None
    assert second.start is not None
    assert saved.time <= gone.time <= first.start < first.end <= second.start
    assert first.run == 1


def test_a_job_is_suspended_for_one_of_higher_priority(cluster: Cluster, tmp_path: Path) -> None:
    low = low_job(cluster, tmp_path)
    equal = heat(cluster, tmp_path, "equal", 0.0, 0)
    assert cluster.client.job(low).state == "RUNNING", "nobody makes place for an equal"
    high = heat(cluster, tmp_path, "high", 0.0, 7)
    assert cluster.client.job(high).priority == 7
    check_results(cluster, tmp_path, low, high)
    assert cluster.client.wait(equal).state == "COMPLETED"
    assert not cluster.history(equal, "job.suspended")


def test_a_server_that_is_killed_after_the_order_loses_neither_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    low = low_job(cluster, tmp_path)
    ranks = [rank.process for rank in cluster.ranks(low)]
    assert len(ranks) == ALL
    for process in ranks:  # no safe point is reached
        process.suspend()
    high = heat(cluster, tmp_path, "high", 0.0, 7)
    cluster.wait_for(low, lambda job: job.state == "ADAPTING", "the order to be stored")
    cluster.kill("server")
    for process in ranks:  # the order may have come, or be lost with the server
        process.resume()
    cluster.up()
    check_results(cluster, tmp_path, low, high)


def test_a_priority_is_changed_while_both_run_and_wait(cluster: Cluster, tmp_path: Path) -> None:
    low = low_job(cluster, tmp_path)
    high = heat(cluster, tmp_path, "high", 0.0, 0)
    assert cluster.client.job(low).state == "RUNNING"
    assert cluster.client.set_priority(high, 1) == f"job {high}: priority 1"
    check_results(cluster, tmp_path, low, high)

"""Limits of users and of restarts on a real cluster: refusals, waiting jobs, ends and SIGHUP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from pliant.client.api import Job
from pliant.client.client_errors import RequestError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SETTINGS = "user_limits: {pending_jobs: 2, running_processors: 3}\nmax_restarts: 1\n"
#: Runs until a file is there.
WAIT = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", SETTINGS, slots=4) as cluster:
        yield cluster


def submit(cluster: Cluster, file: Path) -> int:
    return cluster.client.submit(
        sys.executable, "-c", WAIT, str(file), sizes="2", stdout="/dev/null"
    )


def test_a_job_whose_shim_is_killed_in_each_run_ends_after_the_last_restart(
    shared: Cluster,
) -> None:
    number = shared.client.submit("sleep", "600", requeue=True, stdout="/dev/null")
    for run in (1, 2):

        def runs(job: Job, run: int = run) -> bool:
            return (job.run, job.state) == (run, "RUNNING")

        shared.wait_for(number, runs, f"run {run}")
        (rank,) = shared.ranks(number)
        shim = rank.process.parent()
        assert shim is not None
        shim.kill()
    ended = shared.client.wait(number)
    assert (ended.state, ended.run) == ("NODE_FAIL", 2)
    assert "max_restarts" in ended.reason


def test_limits_hold_over_a_restart(shared: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = submit(shared, gate)
    # Until it starts, it counts as a pending job.
    shared.wait_for(first, lambda job: job.state == "RUNNING", "RUNNING")
    second, third = (submit(shared, gate) for _ in range(2))
    why = "waits for other jobs of"
    shared.wait_for(second, lambda job: why in job.reason, "its reason")
    with pytest.raises(RequestError, match="pending_jobs"):
        submit(shared, gate)
    with pytest.raises(RequestError, match="running_processors"):
        shared.client.submit("true", sizes="4")
    shared.kill("server")
    shared.up()
    with pytest.raises(RequestError, match="pending_jobs"):
        submit(shared, gate)
    gate.touch()
    for number in (first, second, third):
        assert shared.client.wait(number).state == "COMPLETED"

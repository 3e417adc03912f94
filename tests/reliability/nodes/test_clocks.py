"""Case 35: clocks of machines that jump, and that differ: nothing is lost, ended early or negative.

The wall clock of all processes of the cluster is moved (tests/support/falseclock); the true one is
not touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusterkit.afterwards import canary
from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from pliant.client.api import Job
from testkit.repository import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

HOUR = 3600.0
SINCE_1970 = 1.7e9

Clock = Callable[[float], None]


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return what moves the clock of the server and the users; those of nodes are off all along."""
    file = tmp_path / "clock"

    def move(seconds: float) -> None:
        draft = file.with_name("clock.new")
        draft.write_text(f"* {seconds}\nn1 {HOUR}\nn2 {-24 * HOUR}\n")
        draft.rename(file)

    move(0.0)
    monkeypatch.setenv("PLIANT_TEST_CLOCK", str(file))
    paths = [str(ROOT / "tests" / "support" / "falseclock"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return move


def run(cluster: Cluster, gate: Path, **options: Any) -> int:
    """Have a job run on both nodes that ends with code 5 when a file is there."""
    script = f"while [ ! -e '{gate}' ]; do sleep 0.05; done; exit 5"
    job = cluster.client.submit(
        "/bin/sh", "-c", script, sizes="3", type="mpi", stdout="/dev/null", **options
    )
    cluster.wait_for(job, lambda job: job.state == "RUNNING", "the job to run")
    return job


def check_times(cluster: Cluster, *jobs: Job) -> None:
    """No duration in a record is negative, or longer than the test can have taken."""
    for job in jobs:
        assert job.submit is not None
        assert job.start is not None
        assert job.end is not None
        assert 0 <= job.start - job.submit < HOUR
        assert 0 <= job.end - job.start < HOUR
    times = [event.time for event in cluster.client.history()]
    assert times == sorted(times)
    assert times[-1] - times[0] < HOUR


@pytest.mark.case(35)
@pytest.mark.parametrize("jump", [HOUR, -SINCE_1970], ids=["on", "1970"])
def test_a_clock_that_jumps_changes_nothing(
    clock: Clock, cluster: Cluster, tmp_path: Path, jump: float
) -> None:
    gate = tmp_path / "gate"
    job = run(cluster, gate, time_limit_s=600)
    clock(jump)
    first = canary(cluster)
    cluster.kill("server")
    cluster.kill("node-n1")
    cluster.up()  # finds the controller that lives, and starts no second one
    second = canary(cluster)
    told = run_command("jobstat", str(job)).out
    assert re.search(r"RUNNING .* \d[\dm.]*s ", told), told  # no hours, not less than nothing
    gate.touch()
    done = cluster.wait_for(job, lambda job: job.final, "its end")
    assert (done.state, done.exit_code) == ("FAILED", 5)
    check_times(cluster, done, cluster.client.job(first), cluster.client.job(second))
    assert not [event.text for event in cluster.client.history() if "LOST" in event.text]


@pytest.mark.case(35)
def test_a_limit_ends_a_job_in_time_although_the_clock_was_set_back(
    clock: Clock, cluster: Cluster, tmp_path: Path
) -> None:
    job = run(cluster, tmp_path / "gate", time_limit_s=3)
    clock(-HOUR)
    cluster.kill("server")
    cluster.up()
    done = cluster.wait_for(job, lambda job: job.final, "its end")
    assert done.state == "TIMEOUT"
    check_times(cluster, done)

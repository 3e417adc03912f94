"""A real job that is suspended, resumed at other sizes, and requeued: the result is the same."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.applications import checksum, settings_file
from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from pliant.client.api import Job
from pliant.client.client_errors import RequestError
from testkit import run_python, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(240)]

HEAT = {"rows": 64, "columns": 32, "iterations": 300, "every": 5, "tolerance": 0.0}


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", slots=2) as cluster:
        yield cluster


def fill(cluster: Cluster, processors: int) -> int:
    """Start a job that leaves the others so many processors less."""
    sizes = str(processors)
    number = cluster.client.submit("/bin/sleep", "1000", sizes=sizes, stdout="/dev/null")
    cluster.wait_for(number, lambda job: job.state == "RUNNING", "the others' job to run")
    return number


def heat(cluster: Cluster, folder: Path, size: int) -> int:
    argv = (
        sys.executable,
        "-m",
        "pliant.examples.heat",
        settings_file("heat", folder, **HEAT, pause_s=0.05),
    )
    number = cluster.client.submit(*argv, sizes="1-4", stdout=str(folder / "out"))
    assert cluster.wait_malleable(number).processors == size
    return number


def advanced(cluster: Cluster, number: int) -> None:
    """Wait until it has done something since it was started."""

    def passed(job: Job) -> bool:
        progress = job.progress or {}
        return job.state == "RUNNING" and progress.get("safe_points", 0) > 1

    cluster.wait_for(number, passed, "a safe point")


def suspend(cluster: Cluster, number: int) -> None:
    advanced(cluster, number)
    cluster.client.suspend(number)
    job = cluster.wait_for(number, lambda job: job.state == "SUSPENDED", "it to be suspended")
    assert (job.processors, job.reason.startswith("suspended (by ")) == (0, True)


def resume(cluster: Cluster, number: int, size: int) -> None:
    cluster.client.resume_job(number)
    assert cluster.wait_malleable(number).processors == size


def folder_of(cluster: Cluster, number: int) -> list[str]:
    base = cluster.state / "checkpoints"
    return [name for name in os.listdir(base) if name.endswith(f".j{number}")]


def test_the_result_is_that_of_the_undisturbed_run(cluster: Cluster, tmp_path: Path) -> None:
    alone = run_python(
        "-m", "pliant.examples.heat", settings_file("heat", tmp_path, **HEAT, pause_s=0.0)
    )
    other = fill(cluster, 2)
    number = heat(cluster, tmp_path, 2)
    suspend(cluster, number)
    assert len(folder_of(cluster, number)) == 1
    cluster.kill("server")
    cluster.up()
    assert cluster.client.job(number).state == "SUSPENDED"
    third = fill(cluster, 1)
    resume(cluster, number, 1)
    suspend(cluster, number)
    cluster.client.cancel(other, third)
    for cancelled in (other, third):  # their processors are free when their processes have exited
        cluster.client.wait(cancelled)
    fill(cluster, 1)
    resume(cluster, number, 3)
    advanced(cluster, number)
    cluster.client.requeue(number)  # from the checkpoint of its last suspension
    cluster.wait_for(number, lambda job: job.run == 4, "its fourth run")
    cluster.wait_malleable(number)
    job = cluster.client.wait(number)
    text = (tmp_path / "out").read_text()
    assert (job.state, job.exit_code, job.run) == ("COMPLETED", 0, 4), text
    assert checksum(text) == checksum(alone.stdout)
    sizes = [event.data["processors"] for event in cluster.history(number, "job.started")]
    assert [len(processors) for processors in sizes] == [2, 1, 3, 3]
    wait_until(lambda: not folder_of(cluster, number), what="its checkpoints to go")


def test_a_server_that_is_killed_in_the_middle_loses_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    fill(cluster, 2)
    number = heat(cluster, tmp_path, 2)
    advanced(cluster, number)
    pids = [rank.process for rank in cluster.ranks(number)]
    for process in pids:  # no safe point is reached
        process.suspend()
    cluster.client.suspend(number)
    cluster.kill("server")
    for process in pids:  # the order may have come, or be lost with the server
        process.resume()
    cluster.up()
    cluster.wait_for(number, lambda job: job.state == "SUSPENDED", "it to be suspended")
    resume(cluster, number, 2)
    assert cluster.client.wait(number).state == "COMPLETED"


def test_who_cannot_save_itself_is_not_suspended(cluster: Cluster) -> None:
    number = fill(cluster, 2)
    with pytest.raises(RequestError, match=r"has not registered with pliant\.appkit"):
        cluster.client.suspend(number)
    assert cluster.client.job(number).state == "RUNNING"


def test_a_job_that_cannot_be_saved_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    fill(cluster, 2)
    number = heat(cluster, tmp_path, 2)
    base = cluster.state / "checkpoints"
    base.mkdir(exist_ok=True)
    saved = base / "not-a-folder"
    saved.touch()
    name = cluster.ranks(number)[0].process.environ()["PLIANT_CHECKPOINT"]
    (base / name).symlink_to(saved)
    advanced(cluster, number)
    cluster.client.suspend(number)
    job = cluster.wait_for(number, lambda job: "not suspended" in job.reason, "the refusal")
    assert job.state == "RUNNING"
    assert "could not be saved" in job.reason
    (base / name).unlink()
    saved.unlink()
    cluster.client.suspend(number)
    cluster.wait_for(number, lambda job: job.state == "SUSPENDED", "it to be suspended")

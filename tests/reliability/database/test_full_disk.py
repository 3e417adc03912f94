"""Cases 16, 17 and 19 on a file system of their own, which needs root."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.checker import settled
from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.disks import fill, small_disk
from clusterkit.logs import Logs
from pliant.client.client_errors import RequestError
from serverkit import Server
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture
def disk(state_dir: Path) -> Iterator[Path]:
    """Put the state folder on a small file system; skip the test where that is not allowed."""
    with small_disk(state_dir, "24m") as disk:
        yield disk


@pytest.fixture
def cluster(disk: Path) -> Iterator[Cluster]:
    """Return a cluster of one node, whose state is on the small file system."""
    cluster = Cluster(disk.parent, nodes=1, slots=2, strategy="fcfs")
    cluster.up()
    yield cluster
    idle(cluster)
    cluster.down()
    Logs(cluster.state).check()


def refused(cluster: Cluster) -> tuple[set[int], str]:
    """Submit until there is no room for one more; return the jobs, and what the user is told."""
    told = set[int]()
    for _ in range(1000):  # what the database has preallocated is used up first
        try:
            told.add(
                cluster.client.submit(
                    "true", hold=True, stdout="/dev/null", env={"X": "x" * 20_000}
                )
            )
        except RequestError as error:
            return told, str(error)
    raise AssertionError("there was always room")


@pytest.mark.case(16)
def test_submissions_to_a_full_disk_are_refused_until_there_is_room(
    cluster: Cluster, disk: Path
) -> None:
    server = cluster.daemon("server")
    ballast = fill(disk)
    acknowledged, told = refused(cluster)
    assert "full" in told
    assert "try again" in told
    assert {job.id for job in cluster.client.jobs()} == acknowledged
    ballast.unlink()
    job = wait_until(lambda: cluster.client.submit("true", stdout="/dev/null"))
    cluster.wait_for(job, lambda job: job.final, "a job when there is room")
    assert set(settled(cluster.state).jobs) == {*acknowledged, job}
    assert cluster.daemon("server") == server


@pytest.mark.case(17)
def test_an_end_that_finds_no_room_is_kept(cluster: Cluster, disk: Path) -> None:
    gate = disk.parent / "gate"
    script = f"while [ ! -e '{gate}' ]; do sleep 0.05; done; exit 6"
    job = cluster.client.submit("/bin/sh", "-c", script, stdout="/dev/null")
    cluster.wait_for(job, lambda job: job.state == "RUNNING", "the job to run")
    ballast = fill(disk)
    refused(cluster)
    gate.touch()
    wait_until(lambda: not cluster.ranks(job), what="its process to end")
    assert not cluster.client.job(job).final
    ballast.unlink()
    ended = cluster.wait_for(job, lambda job: job.final, "its end to be stored")
    assert (ended.state, ended.exit_code) == ("FAILED", 6)


@pytest.mark.case(16)
def test_a_request_to_a_full_disk_is_answered_and_counts_when_there_is_room(
    cluster: Cluster, disk: Path
) -> None:
    jobs = [cluster.client.submit("true", hold=True, stdout="/dev/null") for _ in range(3)]
    ballast = fill(disk)
    refused(cluster)
    for job in jobs:  # the first one goes to a server that does not know of it yet
        said = run_command("jobctl", "release", str(job), timeout=30)
        assert said.code == 1
        assert "the job database cannot be written (database or disk is full)" in said.line
    assert "nothing was changed" in said.line
    why = run_command("jobctl", "why", str(jobs[-1]), timeout=30)
    assert (why.code, "held" in why.out.lower()) == (0, True), why
    log = (cluster.state / "server.log").read_text()
    assert log.count("cannot store the state") == 1, "a line each time that it tries"
    ballast.unlink()
    released = cluster.wait_for(jobs[0], lambda job: job.final, "what was asked for to be done")
    assert released.state == "COMPLETED"
    assert cluster.client.job(jobs[-1]).state == "HELD"
    run_command("jobctl", "release", str(jobs[-1]))
    cluster.wait_for(jobs[-1], lambda job: job.final, "what is asked for now to be done")


@pytest.mark.case(16)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_start_on_a_full_disk_asks_for_room_and_nothing_else(
    disk: Path, end: signal.Signals
) -> None:
    server = Server(disk.parent).start()
    server.stop(end)
    ballast = fill(disk)
    before = len(server.log())
    assert server.spawn().wait(60) == 1
    assert server.log()[before:].splitlines() == [
        f"pliant server: no room on the device of {disk}: make room there, then start again"
    ]
    ballast.unlink()
    server.start()
    assert server.stop() == 0


@pytest.mark.case(16)
def test_a_start_without_room_for_its_sockets_names_their_folder(disk: Path) -> None:
    server = Server(disk.parent).start()
    assert server.stop() == 0
    with small_disk(server.run, "16k"):
        fill(server.run)
        before = len(server.log())
        assert server.spawn().wait(60) == 1
    said = server.log()[before:]
    assert f"no room on the device of {server.run}: make room there" in said
    assert "Traceback" not in said


@pytest.mark.case(19)
def test_a_read_only_file_system_is_named(disk: Path) -> None:
    cluster = Cluster(disk.parent, nodes=1, slots=1, strategy="fcfs")
    cluster.up()
    cluster.down()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        said = run_command("pliant", "up", "--detach")
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert said.code == 1
    assert str(disk) in said.err
    assert "Read-only" in said.err or "read-only" in said.err

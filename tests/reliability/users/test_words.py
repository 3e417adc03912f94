"""Case 9: the server is killed while it does what a user or a clock asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from clusterkit.checker import settled
from clusterkit.cluster import Cluster, gone
from pliant.client.api import Client, Job
from pliant.client.client_errors import NoServerError, RequestError
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

WORDS = ("server.word.before_commit", "server.word.after_commit")
KILLS = ("server.kill.before_commit", "server.kill.after_commit", "server.kill.sent")


@pytest.fixture
def orders(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file whose orders the daemons obey; it comes before the cluster."""
    file = state_dir.parent / "orders"
    file.write_text("")
    monkeypatch.setenv("PLIANT_FAILPOINTS", f"@{file}")
    return file


class Fault:
    """The server dies at a place; then there is another."""

    def __init__(self, cluster: Cluster, orders: Path, point: str) -> None:
        self._cluster, self._orders = cluster, orders
        self._latch = orders.with_name(f"{point}.latch")
        self._latch.unlink(missing_ok=True)
        draft = orders.with_suffix(".new")
        draft.write_text(f"{point}=kill,once={self._latch}")
        draft.rename(orders)

    def repair(self) -> None:
        """Wait until it has happened, and start what is missing."""
        wait_until(self._latch.exists, what="the place to be reached")
        pid = int(wait_until(self._latch.read_text))
        wait_until(lambda: ended(pid), what="the end of the server")
        self._orders.write_text("")
        self._cluster.missing.add("server")
        self._cluster.up()


def ended(pid: int) -> bool:
    try:
        return gone(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


def say(cluster: Cluster, word: Callable[[Client], object]) -> None:
    """Say it to a server that dies of it."""
    with Client(str(cluster.run)) as client, pytest.raises(NoServerError):
        word(client)


def say_again(cluster: Cluster, word: Callable[[Client], object]) -> None:
    """Say it once more; it may be done already, which the server says."""
    try:
        word(cluster.client)
    except RequestError as error:
        if error.kind == "internal":
            raise


@pytest.mark.case(9)
def test_hold_and_release_can_be_repeated(orders: Path, cluster: Cluster) -> None:
    for point in WORDS:
        hold_and_release(orders, cluster, point)


def hold_and_release(orders: Path, cluster: Cluster, point: str) -> None:
    blocking = cluster.client.submit("sleep", "600", sizes="4", type="mpi", stdout="/dev/null")
    cluster.wait_for(blocking, lambda job: job.state == "RUNNING", "all processors to be taken")
    job = cluster.client.submit("true", stdout="/dev/null")
    for word, state in ((Client.hold, "HELD"), (Client.release, "PENDING")):
        fault = Fault(cluster, orders, point)
        say(cluster, lambda client, word=word: word(client, job))  # type: ignore[misc]
        fault.repair()
        if point == WORDS[1]:
            assert cluster.client.job(job).state == state, "it was durable"
        say_again(cluster, lambda client, word=word: word(client, job))  # type: ignore[misc]
        assert cluster.client.job(job).state == state
    cluster.client.cancel(blocking)
    found = cluster.wait_for(job, lambda job: job.final, "the job to run")
    assert found.state == "COMPLETED"
    settled(cluster.state)


@pytest.mark.case(9)
def test_a_job_is_requeued_once(orders: Path, cluster: Cluster, tmp_path: Path) -> None:
    for point in (*WORDS, KILLS[1]):
        requeue(orders, cluster, point, tmp_path / point)


def requeue(orders: Path, cluster: Cluster, point: str, folder: Path) -> None:
    folder.mkdir()
    script = 'echo "$PLIANT_RUN" >> runs; while [ ! -e gate ]; do sleep 0.05; done; exit 5'
    job = cluster.client.submit(
        "/bin/sh", "-c", script, stdout="/dev/null", chdir=str(folder), type="mpi", sizes="2"
    )
    runs = folder / "runs"
    wait_until(lambda: runs.exists() and runs.read_text().split() == ["1", "1"], what="it to run")
    fault = Fault(cluster, orders, point)
    say(cluster, lambda client: client.requeue(job))
    fault.repair()
    if point == WORDS[0]:
        assert cluster.client.job(job).run == 1, "nothing of it was durable"
        cluster.client.requeue(job)
    cluster.wait_for(job, again, "its second run")
    (folder / "gate").touch()
    found = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert (found.state, found.exit_code, found.run) == ("FAILED", 5, 2)
    assert runs.read_text().split() == ["1", "1", "2", "2"]
    settled(cluster.state)


def again(job: Job) -> bool:
    return (job.run, job.state) == (2, "RUNNING")


@pytest.mark.case(9)
def test_the_end_of_a_time_limit_is_kept(orders: Path, cluster: Cluster) -> None:
    for point in KILLS:
        fault = Fault(cluster, orders, point)
        job = cluster.client.submit("sleep", "600", stdout="/dev/null", time_limit_s=1)
        fault.repair()
        found = cluster.wait_for(job, lambda job: job.final, f"the job to be ended ({point})")
        assert found.state == "TIMEOUT"
        assert not cluster.ranks(job)
        settled(cluster.state)

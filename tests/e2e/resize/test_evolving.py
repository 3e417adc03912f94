"""Programs that ask for more and give back, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.programs import submit_program
from clusterkit.shared import running_cluster
from pliant.client.api import Job
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(180)]

SETTINGS = "quiet_s: 1.0\n"


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", SETTINGS, nodes=4) as cluster:
        yield cluster


class Evolving:
    """The evolving program as a job."""

    def __init__(self, cluster: Cluster, folder: Path, size: int, sizes: str = "1-8") -> None:
        self.cluster, self.folder = cluster, folder
        self.output = folder / "out"
        self.id = submit_program(cluster, "evolving.py", folder, sizes=sizes, prefer=size)
        cluster.wait_malleable(self.id)

    def say(self, text: str) -> None:
        """Have the program do something at its next step."""
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.folder / "say")
        wait_until(lambda: not (self.folder / "say").exists(), what=f"{text!r} to be read")

    def sees(self, text: str) -> str:
        """Wait until the program has printed a text; the line."""

        def lines() -> list[str]:
            return [line for line in self.output.read_text().splitlines() if text in line]

        self.cluster.wait_for(self.id, lambda _: bool(lines()), f"{text!r} in its output")
        return lines()[0]

    def has(self, size: int) -> Job:
        """Wait until the job runs on so many processors, and nobody leaves."""
        return self.cluster.wait_for(
            self.id,
            lambda job: (job.state, job.held) == ("RUNNING", size),
            f"{size} processors",
        )

    def waits(self, number: int) -> None:
        """Wait until a request waits for processors."""
        why = self.cluster.client.why
        wait_until(
            lambda: any(line.startswith(f"request {number}: ") for line in why(self.id).text),
            what="a request that waits",
        )

    def finish(self) -> None:
        """Have it end well."""
        self.say("stop")
        job = self.cluster.wait_for(self.id, lambda job: job.final, "its end")
        assert (job.state, job.exit_code) == ("COMPLETED", 0), self.cluster.report(self.id)


@pytest.fixture
def job(cluster: Cluster, tmp_path: Path) -> Evolving:
    """Return an evolving job on two of eight processors."""
    return Evolving(cluster, tmp_path / "evolving", 2)


def occupy(cluster: Cluster, size: int) -> int:
    """Take processors away for a while."""
    number = cluster.client.submit(
        "/bin/sh", "-c", "sleep 600", sizes=str(size), type="mpi", stdout="/dev/null"
    )
    cluster.wait_for(number, lambda job: job.state == "RUNNING", "processors to be taken")
    return number


def test_it_asks_for_more_and_gets_it(job: Evolving) -> None:
    job.say("request 3")
    job.sees("3 processes, request 3: granted at 3")
    job.has(3)
    assert "the test says so" in job.cluster.history(job.id, "request.received")[0].text
    job.finish()
    assert [note.data["size"] for note in job.cluster.history(job.id, "offer.sent")] == [3]


def test_it_gets_what_there_is(job: Evolving) -> None:
    occupy(job.cluster, 4)
    job.say("request 3-8")
    job.sees("4 processes, request 3-8: granted in part at 4")
    job.finish()


def test_it_is_refused_with_a_reason(cluster: Cluster, tmp_path: Path) -> None:
    narrow = Evolving(cluster, tmp_path / "narrow", 2, sizes="1-4")
    narrow.say("request 6")
    narrow.sees("request 6: refused at 2 none of 6 is one of its sizes 1-4")
    narrow.finish()


def test_it_takes_its_request_back(job: Evolving) -> None:
    number = occupy(job.cluster, 6)
    job.say("request 4")
    job.waits(1)
    job.say("cancel")
    job.sees("2 processes, request 4: cancelled at 0 by the program")
    wait_until(lambda: job.cluster.history(job.id, "request.cancelled"), what="the cancellation")
    job.cluster.client.cancel(number)
    job.cluster.wait_for(job.id, lambda job: job.held == 2, "its old size")
    job.finish()
    assert not job.cluster.history(job.id, "offer.sent")


def test_time_runs_out(job: Evolving) -> None:
    occupy(job.cluster, 6)
    job.say("request 4 0.5")
    job.sees("2 processes, request 4: expired at 2 not met in time")
    job.finish()


def test_the_second_request_counts(job: Evolving) -> None:
    number = occupy(job.cluster, 6)
    job.say("request 8")
    job.waits(1)
    job.say("request 3")
    job.waits(2)
    job.cluster.client.cancel(number)
    job.sees("3 processes, request 3: granted at 3")
    job.has(3)
    job.finish()


def test_it_gives_back(cluster: Cluster, tmp_path: Path) -> None:
    job = Evolving(cluster, tmp_path / "evolving", 5)
    occupy(cluster, 3)
    for gives, left in ((1, 4), (3, 1)):
        job.say(f"release {gives}")
        job.sees(f"{left} processes, request {left}: granted at {left}")
        job.has(left)
        occupy(cluster, gives)
    job.finish()


def test_a_request_outlives_the_slot_of_rank_0(job: Evolving) -> None:
    cluster = job.cluster
    number = occupy(cluster, 6)
    job.say("request 4")
    job.waits(1)
    first = cluster.history(job.id, "job.started")[0].data["processors"][0]
    cluster.resize(job.id, 1, [cluster.place(first)])
    job.sees("1 processes, request 4: refused at 1 an operator fixed its size")
    cluster.client.resize(job.id, 0)
    job.say("request 2")
    job.sees("2 processes, request 2: granted at 2")
    cluster.client.cancel(number)
    job.say("request 3")
    job.sees("3 processes, request 3: granted at 3")
    job.finish()


def test_a_request_outlives_the_server(job: Evolving) -> None:
    cluster = job.cluster
    number = occupy(cluster, 6)
    job.say("request 3")
    job.waits(1)
    cluster.kill("server")
    cluster.up()
    job.waits(1)
    cluster.client.cancel(number)
    job.sees("3 processes, request 3: granted at 3")
    job.finish()
    assert len(cluster.history(job.id, "request.received")) == 1


def test_requests_without_a_server_are_answered_after_its_restart(job: Evolving) -> None:
    cluster = job.cluster
    cluster.kill("server")
    job.say("request 4")
    job.say("request 3")
    cluster.up()
    job.sees("3 processes, request 3: granted at 3")
    job.has(3)
    cluster.kill("server")
    job.say("release 1")
    cluster.up()
    job.sees("2 processes, request 2: granted at 2")
    job.finish()

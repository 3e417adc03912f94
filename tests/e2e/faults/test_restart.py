"""Daemons that are killed in the middle: nothing acknowledged is lost, and jobs stay malleable."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psutil
import pytest

from clusterkit.cluster import Cluster
from clusterkit.counter import Counter
from clusterkit.shared import running_cluster
from pliant.client.api import Client
from pliant.client.client_errors import NoServerError
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(180)]


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", nodes=4) as cluster:
        yield cluster


def shell(cluster: Cluster, command: str, sizes: str = "1") -> int:
    """Submit a command of the shell; more than one processor: it runs on each."""
    kind = "uni" if sizes == "1" else "mpi"
    argv = ["/bin/sh", "-c", command]
    return cluster.client.submit(*argv, sizes=sizes, type=kind, stdout="/dev/null")


def after(gate: Path, code: int) -> str:
    """Return a command that ends with a code once a file is there."""
    return f"while [ ! -e '{gate}' ]; do sleep 0.1; done; exit {code}"


def check_still_malleable(counter: Counter) -> None:
    """Have the job grow, lose the slot of rank 0, and end well."""
    cluster = counter.cluster
    cluster.wait_connected(counter.id)
    size = cluster.client.job(counter.id).processors
    ranks = cluster.resize(counter.id, size + 2).data["processors"]
    cluster.resize(counter.id, size + 1, [cluster.place(ranks[0])])
    counter.finish()
    assert not cluster.history(counter.id, "job.failed")


def pids(counter: Counter) -> list[int]:
    return [rank.process.pid for rank in counter.cluster.ranks(counter.id)]


@pytest.mark.case(5)
def test_a_killed_server_comes_back_to_the_same_jobs(
    cluster: Cluster, counter: Counter, tmp_path: Path
) -> None:
    gates = [tmp_path / name for name in ("early", "late")]
    early = shell(cluster, after(gates[0], 3))
    late = shell(cluster, after(gates[1], 7))
    for number in (early, late):
        cluster.wait_for(number, lambda job: job.state == "RUNNING", "a command to run")
    head, middle, last = (shell(cluster, "exit 0", sizes) for sizes in ("8", "2", "1"))
    before = pids(counter)
    cluster.kill("server")
    gates[0].touch()
    cluster.up()
    assert pids(counter) == before
    jobs = {job.id: job.state for job in cluster.client.jobs([head, middle, last])}
    assert jobs == {head: "PENDING", middle: "PENDING", last: "PENDING"}
    gates[1].touch()
    assert cluster.client.wait(early).exit_code == 3
    assert cluster.client.wait(late).exit_code == 7
    cluster.client.cancel(head)
    assert cluster.client.wait(middle).state == "COMPLETED"
    assert cluster.client.wait(last).state == "COMPLETED"
    assert cluster.client.job(head).state == "CANCELLED"
    check_still_malleable(counter)


def test_a_server_killed_before_go_takes_the_resize_back(counter: Counter) -> None:
    before = pids(counter)
    for gate, kind, size in (
        ("hold-offer", "offer.sent", 3),
        ("hold-offer", "offer.sent", 1),
        ("hold-join", "offer.answered", 3),
    ):
        kill_before_go(counter, gate, kind, size)
        wait_until(lambda: pids(counter) == before, what="joining ranks to be gone")
    check_still_malleable(counter)


def kill_before_go(counter: Counter, gate: str, kind: str, size: int) -> None:
    """Have the server killed in a resize that a gate holds, and the resize be taken back."""
    cluster = counter.cluster
    earlier = len(cluster.history(counter.id, kind))
    counter.shut(gate)
    cluster.client.resize(counter.id, size)
    wait_until(lambda: len(cluster.history(counter.id, kind)) > earlier, what=kind)
    if gate == "hold-join":
        wait_until(lambda: len(pids(counter)) == size, what="a joining rank")
    cluster.kill("server")
    cluster.up()
    counter.open(gate)
    cluster.wait_for(
        counter.id,
        lambda job: (job.state, job.held, job.epoch) == ("RUNNING", 2, 1),
        "the job to be as it was",
    )
    cluster.wait_connected(counter.id)


@pytest.mark.parametrize("away", [True, False], ids=["begun-without", "begun-with"])
def test_a_server_killed_after_go_learns_of_the_resize(counter: Counter, away: bool) -> None:
    """The safe point comes while the server is away, or after it is back."""
    cluster = counter.cluster
    first = cluster.history(counter.id, "job.started")[0].data["processors"][0]
    kill_after_go(counter, 3, [], away=away)
    kill_after_go(counter, 2, [cluster.place(first)], away=away)
    check_still_malleable(counter)


def kill_after_go(counter: Counter, size: int, release: list[str], *, away: bool) -> None:
    """Have the server killed in a resize that has its GO, and learn of the end of the resize."""
    cluster = counter.cluster
    epoch = cluster.client.job(counter.id).epoch
    orders = len(cluster.history(counter.id, "resize.go"))
    sizes = counter.output.read_text()
    counter.shut("hold")
    cluster.client.resize(counter.id, size, release=release)
    wait_until(lambda: len(cluster.history(counter.id, "resize.go")) > orders, what="GO")
    wait_until_told(counter)
    cluster.kill("server")
    if away:
        counter.open("hold")
        wait_until(lambda: counter.output.read_text() != sizes, what="the resize")
    cluster.up()
    if not away:
        counter.open("hold")
    cluster.resized(counter.id, size, epoch)
    cluster.wait_connected(counter.id)


def wait_until_told(counter: Counter) -> None:
    """Wait until what the server has stored has reached the application, too.

    Two reports of an application that is held later, the order that was sent before them is there.
    """

    def age() -> object:
        return (counter.cluster.client.job(counter.id).progress or {}).get("safe_point_age_s")

    for _ in range(2):
        before = age()
        wait_until(lambda before=before: age() != before, what="a report")  # type: ignore[misc]


@pytest.mark.case(21)
def test_a_killed_controller_comes_back_to_its_ranks(counter: Counter) -> None:
    cluster, before = counter.cluster, cluster_ranks(counter)
    cluster.kill(f"node-{before[0][2]}")
    cluster.up()
    assert cluster_ranks(counter) == before
    wait_until(lambda: {node.state for node in cluster.client.nodes()} == {"UP"}, what="all up")
    check_still_malleable(counter)


def cluster_ranks(counter: Counter) -> list[tuple[int, int, str]]:
    ranks = counter.cluster.ranks(counter.id)
    return [(rank.process.pid, rank.processor, rank.node) for rank in ranks]


@pytest.mark.case(22)
def test_codes_of_jobs_that_end_without_their_controller(cluster: Cluster, tmp_path: Path) -> None:
    numbers = [shell(cluster, after(tmp_path / "gate", code), "2") for code in (0, 5)]
    for number in numbers:
        cluster.wait_for(number, lambda job: job.state == "RUNNING", "a command to run")
    nodes = {rank.node for number in numbers for rank in cluster.ranks(number)}
    for node in nodes:
        cluster.kill(f"node-{node}")
    (tmp_path / "gate").touch()
    wait_until(lambda: not any(cluster.ranks(number) for number in numbers), what="the ends")
    cluster.up()
    ends = [cluster.client.wait(number) for number in numbers]
    assert [(job.state, job.exit_code) for job in ends] == [("COMPLETED", 0), ("FAILED", 5)]


def test_jobs_of_a_machine_whose_processes_were_all_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Kill the daemons, the shims and the ranks, as a power failure does."""
    runs = tmp_path / "runs"
    first = f"echo $PLIANT_RUN >> '{runs}'; [ $PLIANT_RUN = 2 ] || exec sleep 600"
    again = cluster.client.submit("sh", "-c", first, requeue=True, stdout="/dev/null")
    never = shell(cluster, "exec sleep 600", "2")
    for number in (again, never):
        cluster.wait_for(number, lambda job: job.state == "RUNNING", "a command to run")
    wait_until(lambda: runs.exists() and runs.read_text(), what="the first run")
    ranks = [rank.process for number in (again, never) for rank in cluster.ranks(number)]
    daemons = list(cluster.daemons().values())
    shims = {parent for rank in ranks for parent in rank.parents()} - set(daemons)
    shims -= {psutil.Process(), *psutil.Process().parents()}
    for process in (*daemons, *shims, *ranks):
        process.kill()
    cluster.up()
    assert cluster.client.wait(again).state == "COMPLETED"
    assert runs.read_text().split() == ["1", "2"]
    lost = cluster.client.wait(never)
    assert lost.state == "NODE_FAIL"
    assert "its shim was killed on " in lost.reason


def test_every_submission_of_a_burst_survives_a_kill_once(cluster: Cluster) -> None:
    """Clients whose server went away before it answered ask again; that makes no second job."""
    acknowledged: dict[int, str] = {}
    enough = threading.Event()

    def submit(who: int) -> None:
        with Client(str(cluster.run)) as client:
            for serial in count():
                if enough.is_set():
                    return
                name = f"burst-{who}-{serial}"
                try:
                    number = client.submit("/bin/true", type="uni", name=name, hold=True)
                except NoServerError:
                    return  # it was away when it was asked
                acknowledged[number] = name

    threads = [threading.Thread(target=submit, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(acknowledged) >= 200, timeout=60, what="two hundred submissions")
        cluster.kill("server")
        cluster.up()
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    jobs = [job for job in cluster.client.jobs() if job.name.startswith("burst-")]
    assert {job.id: job.name for job in jobs} == acknowledged
    assert {job.state for job in jobs} == {"HELD"}

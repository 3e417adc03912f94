"""Cases 28, 29 and 30: links that are down, in one direction or in both, or lose and delay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.checker import settled
from clusterkit.counter import Counter
from clusterkit.stamps import Trail
from netkit.network import ApartCluster, Network, NetworkError
from pliant.client.api import Job
from pliant.client.client_errors import RequestError
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

#: A node that is silent for 1.5 s is suspected, for 8 s lost.
SETTINGS = """
debug: true
lease_s: 8
beat_interval_s: 0.5
kill_grace_s: 0.5
prepare_timeout_s: 3
safe_point_timeout_s: 3
resize_deadline_s: 13
quiet_s: 600
"""
NODES = ("n1", "n2")

Fault = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def network() -> Iterator[Network]:
    """Return a network of a server and two nodes; skip the test where it cannot be made."""
    network = Network(NODES)
    try:
        network.up()
    except NetworkError as error:
        pytest.skip(f"a network cannot be made here: {error}")
    yield network
    network.down()


@pytest.fixture
def cluster(
    state_dir: Path, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ApartCluster]:
    """Return a cluster of two nodes with four slots each, each on a host of its own.

    All processes take what is to happen at failpoints from the file ``orders``.
    """
    (tmp_path / "orders").touch()
    monkeypatch.setenv("PLIANT_FAILPOINTS", f"@{tmp_path / 'orders'}")
    cluster = ApartCluster(state_dir.parent, network, NODES, slots=4)
    try:
        cluster.start(SETTINGS)
        yield cluster
        idle(cluster)
    finally:
        cluster.stop()
    for host in ("server", *NODES):
        assert "Traceback" not in cluster.log(host), cluster.log(host)[-3000:]


def run(cluster: ApartCluster, gate: Path, size: int) -> int:
    """Submit a job that ends with code 5 when a file is there."""
    script = f"while [ ! -e '{gate}' ]; do sleep 0.05; done; exit 5"
    return cluster.client.submit(
        "/bin/sh", "-c", script, sizes=str(size), type="mpi", stdout="/dev/null"
    )


def running(cluster: ApartCluster, gate: Path, size: int) -> tuple[int, str]:
    """Return a job that runs, and its one node."""
    number = run(cluster, gate, size)
    job = cluster.wait_for(number, lambda job: job.state == "RUNNING", f"job {number} to run")
    (node,) = job.nodes
    return number, node


def ended(cluster: ApartCluster, number: int) -> None:
    """Wait until a job has ended as it wanted to."""
    job = cluster.wait_for(number, lambda job: job.final, f"job {number} to end")
    assert (job.state, job.exit_code) == ("FAILED", 5), cluster.report(number)


def wait_state(cluster: ApartCluster, node: str, state: str) -> None:
    wait_until(lambda: cluster.states()[node] == state, what=f"{node} to be {state}")


def places(cluster: ApartCluster, number: int) -> set[int]:
    """The processors on which processes of a job run."""
    return {rank.processor for rank in cluster.ranks(number)}


# ------------------------------------------------------------------------ 28, 29


def below_the_lease(cluster: ApartCluster, folder: Path, fault: Fault) -> None:
    """Have a job end, and another begin, on a node that cannot say so."""
    job, node = running(cluster, folder / "first", 2)
    with fault(node):
        both = run(cluster, folder / "both", 6)
        wait_state(cluster, node, "SUSPECT")
        waiting = run(cluster, folder / "first", 8)
        (folder / "first").touch()
        # Its processes have ended; nobody can know, so nobody gets their processors.
        wait_until(lambda: not cluster.ranks(job), what="its processes to end")
        states = [cluster.client.job(number).state for number in (job, both, waiting)]
        assert states == ["RUNNING", "STARTING", "PENDING"]
    wait_state(cluster, node, "UP")
    ended(cluster, job)
    cluster.wait_for(both, lambda job: job.state == "RUNNING", "the job on both nodes to run")
    (folder / "both").touch()
    for number in (both, waiting):
        ended(cluster, number)
        assert len(cluster.history(number, "job.started")) == 1, cluster.report(number)


def beyond_the_lease(cluster: ApartCluster, folder: Path, fault: Fault) -> None:
    """Have a node lost while a job runs there."""
    job, node = running(cluster, folder / "never", 4)
    registered = cluster.log(node).count("registered with")
    with fault(node):
        lost = cluster.wait_for(job, lambda job: job.final, "the node to be lost")
        assert lost.state == "NODE_FAIL"
        assert cluster.states()[node] == "LOST"
        assert len(places(cluster, job)) == 4, "its processes run, where nobody can reach them"
        waiting = run(cluster, folder / "gate", 8)
        assert cluster.client.job(waiting).state == "PENDING"
    (folder / "gate").touch()
    wait_state(cluster, node, "UP")
    wait_until(lambda: not cluster.ranks(job), what="the end of processes of a lost job")
    assert cluster.log(node).count("registered with") == registered + 1
    ended(cluster, waiting)


def what_is_to_stop_does_so(cluster: ApartCluster, folder: Path, fault: Fault) -> None:
    """What still arrives from the server does not renew the lease of a node that it cannot hear."""
    trail = Trail(folder / "trail")
    (folder / "trail").mkdir()
    job = cluster.client.submit(
        *trail.command, sizes="4", requeue=True, when_cut_off="stop-after=1", stdout="/dev/null"
    )
    cluster.wait_for(job, lambda job: job.state == "RUNNING", "the job to run")
    (node,) = cluster.client.job(job).nodes
    wait_until(lambda: 1 in trail.lives(), what="signs of life")
    with fault(node):
        wait_until(lambda: not cluster.ranks(job), what="the end of processes that are cut off")
        cluster.wait_for(job, lambda job: (job.run, job.state) == (2, "RUNNING"), "another run")
        wait_until(lambda: 2 in trail.lives(), what="its signs of life")
        assert cluster.client.job(job).nodes != (node,)
    wait_state(cluster, node, "UP")
    trail.end()
    done = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert (done.state, done.run) == ("COMPLETED", 2)
    assert not trail.overlap()


@pytest.mark.case(28)
def test_a_link_that_is_down(cluster: ApartCluster, tmp_path: Path) -> None:
    """Below the lease nothing is lost; beyond the lease, the node is fenced."""
    below_the_lease(cluster, tmp_path, cluster.network.cut)
    beyond_the_lease(cluster, tmp_path, cluster.network.cut)


@pytest.mark.case(29)
@pytest.mark.parametrize("direction", ["mute", "deaf"])
def test_one_direction_that_is_down(cluster: ApartCluster, tmp_path: Path, direction: str) -> None:
    """Below the lease nothing is lost; beyond the lease, the node is fenced."""
    fault = getattr(cluster.network, direction)
    below_the_lease(cluster, tmp_path, fault)
    beyond_the_lease(cluster, tmp_path, fault)
    what_is_to_stop_does_so(cluster, tmp_path, fault)


def resized_at_last(cluster: ApartCluster, number: int, size: int) -> None:
    """Ask for a size until the program has it: over such a link joining ranks may come too late."""

    def there() -> bool:
        job = cluster.client.job(number)
        if job.processors != size:
            with suppress(RequestError):  # the last one is not over
                cluster.client.resize(number, size)
        return job.processors == size and job.state == "RUNNING"

    wait_until(there, every=0.2, what=f"{size} processors")


@pytest.mark.case(29)
def test_a_link_that_is_slow_and_loses_much_does_for_all(
    cluster: ApartCluster, tmp_path: Path
) -> None:
    counter = Counter(cluster, tmp_path / "counter", sizes="1-4")
    (node,) = cluster.wait_malleable(counter.id).nodes
    with cluster.network.bad(node, delay_s=0.1, loss=0.1):
        across = run(cluster, tmp_path / "gate", 6)
        cluster.wait_for(across, lambda job: job.state == "RUNNING", "a job on both nodes")
        (tmp_path / "gate").touch()
        ended(cluster, across)
        for size in (4, 1):
            resized_at_last(cluster, counter.id, size)
        settled(cluster.state)
    counter.finish()
    assert "nothing heard" not in cluster.log("server")


# ------------------------------------------------------------------------ 30


def counting(cluster: ApartCluster, folder: Path) -> tuple[Counter, str]:
    """Return the counting program on two processors of one node, and the node."""
    counter = Counter(cluster, folder, sizes="1-4")
    (node,) = cluster.wait_malleable(counter.id).nodes
    return counter, node


def size_of(counter: Counter) -> int:
    """The size that the program has."""
    return int(counter.output.read_text().split("size ")[-1].split()[0])


def agreed(cluster: ApartCluster, counter: Counter) -> int:
    """Wait until the server, the program and the processes on the node are of one size."""

    def one(job: Job) -> bool:
        sizes = {job.processors, job.held, size_of(counter), len(places(cluster, counter.id))}
        return job.state == "RUNNING" and len(sizes) == 1

    return cluster.wait_for(counter.id, one, "both sides to agree").processors


@pytest.mark.case(30)
def test_a_program_that_decides_while_its_link_is_down(
    cluster: ApartCluster, tmp_path: Path
) -> None:
    counter, node = counting(cluster, tmp_path / "counter")
    decides_while_its_link_is_down(cluster, counter, node, tmp_path, (2, 4))
    decides_while_its_link_is_down(cluster, counter, node, tmp_path, (4, 1))
    settled(cluster.state)
    counter.finish()


def decides_while_its_link_is_down(
    cluster: ApartCluster, counter: Counter, node: str, folder: Path, sizes: tuple[int, int]
) -> None:
    """Have a program resized after GO, while the server cannot hear of it."""
    before, size = sizes
    reached = {"appkit.go.heard": folder / f"heard{size}"}
    if size > before:
        reached["appkit.newcomer.go"] = folder / "met"
    counter.shut("hold")
    notes = [f"{point}=delay:0,once={file}" for point, file in reached.items()]
    (folder / "orders").write_text("; ".join(notes))
    expired = len(cluster.history(counter.id, "offer.expired"))

    def agreed_to_go() -> bool:
        # On a busy machine joining ranks may be late for the short deadline of this cluster.
        if cluster.client.job(counter.id).state == "RUNNING":
            with suppress(RequestError):  # the last resize is not over
                cluster.client.resize(counter.id, size)
        return all(file.exists() for file in reached.values())

    wait_until(agreed_to_go, every=0.2, timeout=120, what="GO")
    with cluster.network.cut(node):
        counter.open("hold")
        wait_until(lambda: size_of(counter) == size, what="the program to be resized")
        # The server knows of no safe point, and its word to take it back comes too late.
        wait_until(
            lambda: len(cluster.history(counter.id, "offer.expired")) > expired,
            what="the server's word",
        )
        job = cluster.client.job(counter.id)
        assert (job.state, job.processors) == ("ADAPTING", before)
    assert agreed(cluster, counter) == size


@pytest.mark.case(30)
@pytest.mark.parametrize("size", [4, 1])
def test_a_go_that_does_not_arrive_in_time(
    cluster: ApartCluster, tmp_path: Path, size: int
) -> None:
    counter, node = counting(cluster, tmp_path / "counter")
    stored = tmp_path / "stored"
    (tmp_path / "orders").write_text(f"server.go.after_commit=delay:2,once={stored}")
    cluster.client.resize(counter.id, size)
    wait_until(stored.exists, what="GO to be stored")
    with cluster.network.cut(node):
        wait_until(lambda: cluster.history(counter.id, "offer.expired"), what="the server's word")
        assert size_of(counter) == 2
    agreed(cluster, counter)
    settled(cluster.state)
    counter.finish()


@pytest.mark.case(30)
@pytest.mark.parametrize(("before", "size"), [(2, 4), (4, 5)])
def test_joining_ranks_that_cannot_say_that_they_are_there(
    cluster: ApartCluster, tmp_path: Path, before: int, size: int
) -> None:
    """They are on the node of the others, or all of them on the other one."""
    counter = Counter(cluster, tmp_path / "counter", sizes="1-8", prefer=before)
    cluster.wait_malleable(counter.id)
    counter.shut("hold-join")
    cluster.client.resize(counter.id, size)
    wait_until(lambda: len(places(cluster, counter.id)) == size, what="joining ranks")
    with cluster.network.cut(cluster.ranks(counter.id)[-1].node):
        counter.open("hold-join")
        wait_until(lambda: cluster.history(counter.id, "offer.withdrawn"), what="the server's end")
        assert size_of(counter) == before
        assert len(places(cluster, counter.id)) == size, "nobody could tell them to go"
    assert agreed(cluster, counter) == before
    settled(cluster.state)
    counter.finish()


@pytest.mark.case(30)
def test_a_link_that_is_back_too_late(cluster: ApartCluster, tmp_path: Path) -> None:
    counter, node = counting(cluster, tmp_path / "counter")
    counter.shut("hold-join")
    cluster.client.resize(counter.id, 4)
    wait_until(lambda: len(places(cluster, counter.id)) == 4, what="joining ranks")
    with cluster.network.cut(node):
        counter.open("hold-join")
        lost = cluster.wait_for(counter.id, lambda job: job.final, "the node to be lost")
        assert lost.state == "NODE_FAIL"
        assert places(cluster, counter.id), "its processes run, where nobody can reach them"
    wait_state(cluster, node, "UP")
    wait_until(lambda: not cluster.ranks(counter.id), what="the end of processes of a lost job")

"""Cases 26 and 27: who stands still for less or for more than a lease; a server, too."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from clusterkit.checker import settled
from clusterkit.cluster import Cluster
from clusterkit.stamps import Trail
from faultkit.bed import Carrier
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@contextmanager
def frozen(cluster: Cluster, name: str) -> Iterator[psutil.Process]:
    """Stop a controller and what it has started to start others; at the end it goes on."""
    process = cluster.daemon(f"node-{name}")
    process.send_signal(signal.SIGSTOP)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)


def run(cluster: Cluster, gate: Path, sizes: str) -> int:
    """Submit a job that ends with code 5 when a file is there."""
    script = f"while [ ! -e '{gate}' ]; do sleep 0.05; done; exit 5"
    kind = "uni" if sizes == "1" else "mpi"
    return cluster.client.submit(
        "/bin/sh", "-c", script, sizes=sizes, type=kind, stdout="/dev/null"
    )


def state_of(cluster: Cluster, name: str) -> str:
    return next(node.state for node in cluster.client.nodes() if node.name == name)


def node_of(cluster: Cluster, job: int) -> str:
    (node,) = cluster.client.job(job).nodes
    return node


@pytest.mark.case(26)
def test_a_controller_that_is_frozen_for_a_while_loses_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = run(cluster, gate, "2")
    cluster.wait_for(job, lambda job: job.state == "RUNNING", "the job to run")
    node = node_of(cluster, job)
    with frozen(cluster, node):
        wait_until(lambda: state_of(cluster, node) == "SUSPECT", what="suspicion")
        waiting = run(cluster, gate, "4")
        gate.touch()
        # Its processes have ended; nobody can know, so nobody gets their processors.
        wait_until(lambda: not cluster.ranks(job), what="its processes to end")
        assert cluster.client.job(job).state == "RUNNING"
        assert cluster.client.job(waiting).state == "PENDING"
    wait_until(lambda: state_of(cluster, node) == "UP", what="its return")
    ended = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert (ended.state, ended.exit_code) == ("FAILED", 5)
    cluster.wait_for(waiting, lambda job: job.final, "the other job to run and end")


@pytest.mark.case(27)
def test_a_controller_that_is_frozen_beyond_its_lease_is_fenced(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = run(cluster, tmp_path / "never", "2")
    cluster.wait_for(job, lambda job: job.state == "RUNNING", "the job to run")
    node = node_of(cluster, job)
    with frozen(cluster, node):
        lost = cluster.wait_for(job, lambda job: job.final, "the node to be lost")
        assert lost.state == "NODE_FAIL"
        assert cluster.ranks(job), "its processes run, where nobody can reach them"
        waiting = run(cluster, tmp_path / "gate", "4")
        assert cluster.client.job(waiting).state == "PENDING"
    (tmp_path / "gate").touch()
    wait_until(lambda: state_of(cluster, node) == "UP", what="its return")
    wait_until(lambda: not cluster.ranks(job), what="the end of processes of a lost job")
    cluster.wait_for(waiting, lambda job: job.final, "the other job to run there")
    settled(cluster.state)


#: A short lease, and a time in which everybody's runs out.
SHORT, STANDS_STILL_S = "lease_s: 3\nresize_deadline_s: 3\nbeat_interval_s: 0.25\n", 5.0


@pytest.mark.case(27)
@pytest.mark.parametrize("cluster", [SHORT], indirect=True, ids=["short"])
@pytest.mark.parametrize("who", ["the server", "every daemon"])
def test_a_frozen_server_does_not_suspect_nodes(cluster: Cluster, tmp_path: Path, who: str) -> None:
    gate = tmp_path / "gate"
    job = run(cluster, gate, "2")
    cluster.wait_for(job, lambda job: job.state == "RUNNING", "the job to run")
    names = ["server"] if who == "the server" else sorted(cluster.daemons())
    processes = [cluster.daemons()[name] for name in names]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    time.sleep(STANDS_STILL_S)
    for process in processes:
        process.send_signal(signal.SIGCONT)
    gate.touch()
    ended = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert (ended.state, ended.exit_code) == ("FAILED", 5), "its own code"
    wait_until(lambda: {node.state for node in cluster.client.nodes()} == {"UP"}, what="all nodes")
    assert "this server did not run for" in (cluster.state / "server.log").read_text()


@pytest.mark.case(27)
@pytest.mark.mpi
@pytest.mark.parametrize(
    "cluster", [f"{SHORT}safe_point_timeout_s: 2\n"], indirect=True, ids=["short"]
)
def test_a_frozen_server_learns_the_outcome_of_a_resize(cluster: Cluster, tmp_path: Path) -> None:
    job = Carrier(cluster, tmp_path / "job", 2, orders="appkit.move.moved=delay:1")
    cluster.wait_malleable(job.id)
    server = cluster.daemon("server")
    cluster.client.resize(job.id, 3)
    wait_until(lambda: bool(cluster.history(job.id, "resize.begun")), what="it to begin")
    server.send_signal(signal.SIGSTOP)
    time.sleep(STANDS_STILL_S)
    server.send_signal(signal.SIGCONT)
    cluster.wait_for(job.id, lambda job: job.processors == 3, "the resize to be known")
    job.goes_on()
    job.finish()


def run_again(cluster: Cluster, trail: Trail, policy: str) -> tuple[int, str]:
    """Return a job of two processes that has another run when it loses its node, and that node."""
    job = cluster.client.submit(
        *trail.command, sizes="2", requeue=True, when_cut_off=policy, stdout="/dev/null"
    )
    cluster.wait_for(job, lambda job: job.state == "RUNNING", "the job to run")
    wait_until(lambda: 1 in trail.lives(), what="signs of life")
    return job, node_of(cluster, job)


@pytest.mark.case(27)
def test_what_is_to_stop_ends_beside_a_frozen_controller_before_the_next_run_begins(
    cluster: Cluster, tmp_path: Path
) -> None:
    trail = Trail(tmp_path)
    job, node = run_again(cluster, trail, "stop-after=1")
    with frozen(cluster, node):
        cluster.wait_for(job, lambda job: job.state == "COMPLETING", "the loss of the node")
        assert any("no other run starts before" in line for line in cluster.client.why(job).text)
        wait_until(lambda: not cluster.ranks(job), what="the end of processes that are cut off")
        cluster.wait_for(job, lambda job: (job.run, job.state) == (2, "RUNNING"), "another run")
        wait_until(lambda: 2 in trail.lives(), what="its signs of life")
        assert node_of(cluster, job) != node
        assert not trail.overlap()
    wait_until(lambda: state_of(cluster, node) == "UP", what="its return")
    trail.end()
    ended = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert (ended.state, ended.run) == ("COMPLETED", 2)
    settled(cluster.state)


@pytest.mark.case(27)
def test_what_is_to_go_on_may_have_another_run_beside_it(cluster: Cluster, tmp_path: Path) -> None:
    trail = Trail(tmp_path)
    job, node = run_again(cluster, trail, "keep")
    with frozen(cluster, node):
        cluster.wait_for(job, lambda job: (job.run, job.state) == (2, "RUNNING"), "another run")
        wait_until(lambda: 2 in trail.lives(), what="its signs of life")
        wait_until(trail.overlap, what="signs of both")
    wait_until(lambda: state_of(cluster, node) == "UP", what="its return")
    wait_until(lambda: len(cluster.ranks(job)) == 2, what="the end of the first run")
    trail.end()
    ended = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert (ended.state, ended.run) == ("COMPLETED", 2)


@pytest.mark.case(27)
def test_what_is_to_stop_ends_without_a_server_and_has_another_run_with_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    trail = Trail(tmp_path)
    job, _ = run_again(cluster, trail, "stop-after=0.5")
    cluster.kill("server")
    wait_until(lambda: not cluster.ranks(job), what="the end of processes that are cut off")
    cluster.up()
    cluster.wait_for(job, lambda job: (job.run, job.state) == (2, "RUNNING"), "another run")
    texts = [event.text for event in cluster.history(job)]
    assert any("cut off from the server for" in text for text in texts), texts
    trail.end()
    ended = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert (ended.state, ended.run) == ("COMPLETED", 2)
    assert not trail.overlap()

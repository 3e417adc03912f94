"""Nodes with network interfaces of their own, which join over TLS without any further setting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clusterkit.counter import Counter
from netkit.network import Network, NetworkError
from pliant.client.client_errors import ClientError
from testkit import MPIEXEC
from testkit.waiting import wait_until
from tlskit.cluster import ApartTlsCluster

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]

NODES = {"n1": 2, "n2": 2, "n3": 2}


@pytest.fixture
def network() -> Iterator[Network]:
    """Return a network with addresses that are not loopback; skip where it cannot be made."""
    network = Network(list(NODES), "10.77.0")
    try:
        network.up()
    except NetworkError as error:
        pytest.skip(f"a network cannot be made here: {error}")
    yield network
    network.down()


@pytest.fixture
def cluster(
    state_dir: Path, network: Network, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ApartTlsCluster]:
    monkeypatch.delenv("FI_TCP_IFACE")  # each node finds its own interface
    made = ApartTlsCluster(state_dir.parent, network, NODES)
    try:
        made.up()
        yield made
    finally:
        made.down()
    for host in ("server", *NODES):
        assert "Traceback" not in made.log(host), made.log(host)[-3000:]


def test_a_job_is_resized_across_hosts_and_survives_a_cut_link(
    cluster: ApartTlsCluster, network: Network, tmp_path: Path
) -> None:
    job = Counter(cluster, tmp_path / "counter")
    cluster.wait_malleable(job.id)
    cluster.resize(job.id, 6)
    ranks = cluster.ranks(job.id)
    assert {each.node for each in ranks} == set(NODES)
    for each in ranks:
        variables = each.process.environ()
        assert variables["PLIANT_NODE_ADDRESS"] == network.address(each.node)
        assert variables["FI_TCP_IFACE"] == "uplink"
        assert variables["PLIANT_APPLICATION_ADDRESS"].startswith("10.77.0.1:")
    with network.cut("n1"):  # the application's connection to the server, too
        wait_until(lambda: cluster.states()["n1"] == "SUSPECT", what="the cut to be noticed")
    wait_until(lambda: cluster.states()["n1"] == "UP", what="the link to be back")
    cluster.wait_for(job.id, lambda each: each.state == "RUNNING", "the job to go on")
    _resize_again(cluster, job.id, 2)
    job.finish()


def _resize_again(cluster: ApartTlsCluster, job: int, size: int) -> None:
    """Resize a job whose connections may still break because of the cut; then it is offered again.

    gRPC finds a dead connection up to 15 s after the cut. An offer is withdrawn then, and refused
    while the application connects again.
    """

    def has_size() -> bool:
        with suppress(AssertionError, ClientError):
            cluster.resize(job, size)
        return cluster.client.job(job).processors == size

    wait_until(has_size, timeout=150.0, every=1.0, what=f"{size} processors")


def test_a_job_is_resized_over_a_slow_link_that_loses_packets(
    cluster: ApartTlsCluster, network: Network, tmp_path: Path
) -> None:
    job = Counter(cluster, tmp_path / "counter")
    cluster.wait_malleable(job.id)
    with network.bad("n2", 0.02, 0.05):
        cluster.resize(job.id, 4)
        cluster.resize(job.id, 3)
        job.finish()


def test_mpiexec_in_a_script_reaches_all_hosts(cluster: ApartTlsCluster, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from mpi4py import MPI; print(MPI.COMM_WORLD.size, MPI.COMM_WORLD.allreduce(1))"
    )
    (tmp_path / "job.sh").write_text(f"{MPIEXEC} {sys.executable} program.py\n")
    number = cluster.client.submit(str(tmp_path / "job.sh"), sizes="6", chdir=str(tmp_path))
    job = cluster.wait_for(number, lambda each: each.final, "the end")
    output = Path(job.stdout).read_text()
    assert (job.state, output.splitlines()) == ("COMPLETED", ["6 6"] * 6), output
    assert len(job.nodes) == 3

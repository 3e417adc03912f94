"""A node dies under a malleable program: it continues on the others, or with a spare one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from clusterkit.applications import checksum, paced, plain
from clusterkit.cluster import PLIANT, Cluster
from clusterkit.shared import running_cluster
from testkit import run_python, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]

SETTINGS = "lease_s: 8.0\nbeat_interval_s: 0.25\n"


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", SETTINGS, nodes=3, slots=1) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks sleep while they wait for one that was killed: MPICH polls without a pause."""
    monkeypatch.setenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")


@contextmanager
def spare_node(cluster: Cluster) -> Iterator[None]:
    """Have the controller of a spare node beside those of the cluster."""
    words = ["nodectl", "--name", "s1", "--slots", "1", "--spare", "--log-level", "warning"]
    with (
        (cluster.base / "s1.log").open("wb") as log,
        subprocess.Popen([sys.executable, *PLIANT, *words], stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(lambda: state(cluster, "s1") == ("SPARE", ""), what="a spare node")
            yield
        finally:
            process.send_signal(signal.SIGTERM)


def state(cluster: Cluster, name: str) -> tuple[str, str]:
    found = [(node.state, node.reason) for node in cluster.client.nodes() if node.name == name]
    return found[0] if found else ("", "")


def lose(cluster: Cluster, name: str) -> None:
    """A host without power: nothing of it ends in order."""
    below = cluster.daemon(f"node-{name}").children(recursive=True)
    cluster.kill(f"node-{name}")
    for process in below:
        process.kill()
    psutil.wait_procs(below)


def goes_on(cluster: Cluster, folder: Path, size: int) -> tuple[int, int, str]:
    """Have a program on all three processors lose the node of rank 0.

    Returns:
        The program, another that waits, and the lost node.
    """
    hurry = folder / "hurry"
    number = cluster.client.submit(
        sys.executable,
        *paced("heat", folder, hurry, 3),
        sizes="1-3",
        type="mpi",
        stdout=str(folder / "out"),
    )
    cluster.wait_malleable(number)
    assert cluster.client.job(number).processors == 3
    saves = cluster.state / "checkpoints"
    wait_until(lambda: [*saves.glob(f"*.j{number}/manifest.json")] != [], what="a checkpoint")
    other = cluster.client.submit("/bin/true", type="uni", stdout="/dev/null")
    (lost,) = [rank.node for rank in cluster.ranks(number) if rank.processor == 0]
    lose(cluster, lost)
    cluster.wait_for(number, lambda job: (job.run, job.processors) == (2, size), "its next run")
    assert cluster.client.job(other).state == "PENDING"
    cluster.wait_malleable(number)
    assert lost not in cluster.client.job(number).nodes
    return number, other, lost


def ends_well(cluster: Cluster, number: int, folder: Path, size: int, lost: str) -> None:
    """Have it end: it has gone on from its checkpoint, and computed what it should."""
    (folder / "hurry").touch()
    alone = run_python(*plain("heat", folder, 3)).stdout
    job = cluster.wait_for(number, lambda job: job.final, f"job {number} to end")
    assert (job.state, job.exit_code) == ("COMPLETED", 0), cluster.report(number)
    text = (folder / "out").read_text()
    assert f"3 -> {size} processes" in text, "it began anew"
    assert checksum(text) == checksum(alone)
    (told,) = cluster.history(number, "job.survived")
    assert (told.data["lost"], told.data["from"], told.data["size"]) == ([lost], 3, size)
    assert told.data["iteration"] > 0
    assert f"from iteration {told.data['iteration']}" in told.text


@pytest.mark.case(24)
def test_it_goes_on_where_it_was_at_a_smaller_size(cluster: Cluster, tmp_path: Path) -> None:
    number, other, lost = goes_on(cluster, tmp_path, 2)
    assert len(cluster.client.job(number).nodes) == 2
    ends_well(cluster, number, tmp_path, 2, lost)
    assert cluster.client.wait(other).state == "COMPLETED"


@pytest.mark.case(24)
def test_with_a_spare_node_it_keeps_its_size(cluster: Cluster, tmp_path: Path) -> None:
    with spare_node(cluster):
        with pytest.raises(Exception, match="can never be satisfied: the cluster has 3"):
            cluster.client.submit("/bin/true", sizes="4")
        number, other, lost = goes_on(cluster, tmp_path, 3)
        assert "s1" in cluster.client.job(number).nodes
        assert state(cluster, "s1") == ("UP", f"stands in for {lost}")
        cluster.up()  # the lost node is back, and the other job starts there
        assert cluster.client.wait(other).state == "COMPLETED"
        wait_until(lambda: state(cluster, "s1") == ("SPARE", ""), what="the spare one to wait")
        assert cluster.client.job(number).state == "RUNNING"
        ends_well(cluster, number, tmp_path, 3, lost)

"""After each resize, the CPUs on which ranks may run are those of the slots of their job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterkit.cluster import PATIENCE_S, Cluster
from clusterkit.counter import Counter
from clusterkit.shared import running_cluster
from pliant.nodectl.host import procfs
from testkit import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.mpi,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not {0, 1} <= os.sched_getaffinity(0), reason="CPUs 0 and 1 cannot be used here"
    ),
]

SLOTS = 2


@pytest.fixture(autouse=True, scope="module")
def _threads() -> Iterator[None]:
    """Let ranks have threads for linear algebra, which must be bound, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENBLAS_NUM_THREADS")
        yield


@pytest.fixture(scope="module")
def bound_cluster(_threads: None) -> Iterator[Cluster]:
    """Return a cluster whose nodes all bind to CPUs 0 and 1, although they are on one machine."""
    with running_cluster("fcfs", nodes=3, slots=SLOTS) as cluster, bound(cluster):
        yield cluster


@contextmanager
def bound(cluster: Cluster) -> Iterator[None]:
    started = []
    for node in cluster.client.nodes():
        cluster.kill(f"node-{node.name}")
        command = ["-m", "pliant.nodectl", "--name", node.name, "--slots", str(SLOTS)]
        command += ["--cpus", "0-1", "--address-file", str(cluster.run / "server.address")]
        with open(cluster.base / f"{node.name}.log", "ab") as log:
            started.append(subprocess.Popen([sys.executable, *command], stdout=log, stderr=log))
    wait_until(
        lambda: all(
            node.state == "UP" and "not bound" not in node.containment.get("cpus", "not bound")
            for node in cluster.client.nodes()
        ),
        timeout=PATIENCE_S,
        what="nodes that bind",
    )
    yield
    cluster.missing.clear()
    for process in started:
        process.terminate()
        process.wait(timeout=PATIENCE_S)
    cluster.up()  # whole, for the checks after the test


def allowed(cluster: Cluster, job: int) -> dict[int, set[frozenset[int]]]:
    """Return where the threads of each rank's processes may run, by processor."""
    found = {}
    for rank in cluster.ranks(job):
        pids = (rank.process.pid, *procfs.descendants(rank.process.pid))
        tasks = [task for pid in pids for task in procfs.tasks(pid)]
        found[rank.processor] = {frozenset(os.sched_getaffinity(task)) for task in tasks}
    return found


def expected(cluster: Cluster, job: int, bind: str) -> dict[int, set[frozenset[int]]]:
    """Return the CPUs of the slots that a job has."""
    processors = {rank.processor: rank.node for rank in cluster.ranks(job)}
    if bind == "rank":
        return {number: {frozenset({number % SLOTS})} for number in processors}
    return {
        number: {frozenset(other % SLOTS for other, at in processors.items() if at == node)}
        for number, node in processors.items()
    }


@pytest.mark.parametrize(
    ("bind", "sizes"), [("rank", (2, 5, 1, 4)), ("node", (4, 2, 3))], ids=["rank", "node"]
)
def test_the_cpus_of_every_rank_are_those_of_its_slots_after_each_resize(
    bound_cluster: Cluster, tmp_path: Path, bind: str, sizes: tuple[int, ...]
) -> None:
    cluster = bound_cluster
    job = Counter(cluster, tmp_path / "counter", bind=bind)
    cluster.wait_malleable(job.id)
    for size in sizes:
        if cluster.client.job(job.id).processors != size:
            cluster.resize(job.id, size)
        assert len(cluster.ranks(job.id)) == size
        wait_until(
            lambda: allowed(cluster, job.id) == expected(cluster, job.id, bind),
            what=f"the CPUs of {size} slots",
        )
    job.finish()


def test_a_job_can_be_unbound(bound_cluster: Cluster, tmp_path: Path) -> None:
    job = Counter(bound_cluster, tmp_path / "counter", sizes="2", bind="none")
    bound_cluster.wait_malleable(job.id)
    everywhere = [{frozenset(os.sched_getaffinity(0))}] * 2
    assert list(allowed(bound_cluster, job.id).values()) == everywhere
    job.finish()

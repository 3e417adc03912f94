"""The applications through random resizes and requeues on a real cluster: one result each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clusterkit.applications import NAMES, checksum, paced, plain
from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from testkit import run_python, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(600)]

#: Of each application: enough to find what is wrong in every kind; 30 and more look longer, and
#: another seed looks elsewhere.
RESIZES = int(os.environ.get("PLIANT_TEST_RESIZES", "3"))
SEED = os.environ.get("PLIANT_TEST_SEED", "")
#: On any number of processors, but for one.
SIZES = {"ft": (1, 2, 4)}
ANY = (1, 2, 3, 4)


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", nodes=4) as cluster:
        yield cluster


def start(cluster: Cluster, folder: Path, argv: list[str], **options: Any) -> int:
    number = cluster.client.submit(
        sys.executable, *argv, sizes="1-8", type="mpi", stdout=str(folder / "out"), **options
    )
    cluster.wait_malleable(number)
    return number


def saved(cluster: Cluster, number: int) -> None:
    """Wait until it has taken a checkpoint."""
    saves = cluster.state / "checkpoints"
    wait_until(lambda: [*saves.glob(f"*.j{number}/manifest.json")] != [], what="a checkpoint")


def ends_well(cluster: Cluster, number: int, folder: Path) -> str:
    """Wait until it has ended; return what it has printed."""
    job = cluster.wait_for(number, lambda job: job.final, f"job {number} to end")
    assert (job.state, job.exit_code) == ("COMPLETED", 0), cluster.report(number)
    return (folder / "out").read_text()


def fill(cluster: Cluster, processors: int) -> int:
    """Start a job that leaves the others so many processors less."""
    argv = ("/bin/sleep", "1000")
    number = cluster.client.submit(*argv, sizes=str(processors), stdout="/dev/null")
    cluster.wait_for(number, lambda job: job.state == "RUNNING", "the others' job to run")
    return number


@pytest.mark.parametrize("name", NAMES)
def test_random_resizes_do_not_change_the_result(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    alone = run_python(*plain(name, tmp_path, RESIZES), timeout=300).stdout
    hurry = tmp_path / "hurry"
    number = start(cluster, tmp_path, paced(name, tmp_path, hurry, RESIZES), prefer=1)
    ranks = list(cluster.history(number, "job.started")[0].data["processors"])
    random = Random(name + SEED)
    for turn in range(RESIZES):
        size = random.choice([each for each in SIZES.get(name, ANY) if each != len(ranks)])
        if turn == RESIZES - 1 and len(ranks) > 2:
            size = 2  # the rest of the run has two processors of this machine
        leaving = random.sample(ranks, max(0, len(ranks) - size))
        named = [cluster.place(processor) for processor in leaving]
        ranks = list(cluster.resize(number, size, named).data["processors"])
        assert not set(leaving) & set(ranks)
    hurry.touch()
    assert checksum(ends_well(cluster, number, tmp_path)) == checksum(alone)
    assert len(cluster.history(number, "job.resized")) == RESIZES


# The daemons treat all applications alike, and `tests/examples` kills each of them and lets it
# continue at another size.
def test_who_is_requeued_goes_on_from_its_checkpoint_at_another_size(
    cluster: Cluster, tmp_path: Path
) -> None:
    alone = run_python(*plain("master_worker", tmp_path, 2)).stdout
    hurry = tmp_path / "hurry"
    other = fill(cluster, 6)
    number = start(cluster, tmp_path, paced("master_worker", tmp_path, hurry, 2))
    saved(cluster, number)
    cluster.client.cancel(other)
    fill(cluster, 5)
    cluster.client.requeue(number)  # its processes are killed, and save nothing
    cluster.wait_for(number, lambda job: job.run == 2, "its second run")
    cluster.wait_malleable(number)
    hurry.touch()
    text = ends_well(cluster, number, tmp_path)
    assert "2 -> 3 processes" in text, "it began anew"
    assert checksum(text) == checksum(alone)


@pytest.mark.case(27)
def test_who_loses_a_node_goes_on_from_its_checkpoint_on_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ranks wait for those that were killed. MPICH polls without a pause otherwise.
    monkeypatch.setenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    alone = run_python(*plain("heat", tmp_path, 2)).stdout
    hurry = tmp_path / "hurry"
    with running_cluster("fcfs", "lease_s: 8.0\nbeat_interval_s: 0.5\n") as cluster:
        number = start(cluster, tmp_path, paced("heat", tmp_path, hurry, 2), requeue=True)
        saved(cluster, number)
        lost = [rank.process for rank in cluster.ranks(number) if rank.node == "n2"]
        cluster.kill("node-n2")
        for process in lost:
            process.kill()
        cluster.wait_for(number, lambda job: job.run == 2, "its second run")
        cluster.wait_malleable(number)
        hurry.touch()
        text = ends_well(cluster, number, tmp_path)
        cluster.up()
    assert "4 -> 2 processes" in text, "it began anew"
    assert checksum(text) == checksum(alone)


def test_ft_runs_on_a_power_of_two(cluster: Cluster, tmp_path: Path) -> None:
    alone = run_python(*plain("ft", tmp_path, 2)).stdout
    other = fill(cluster, 5)
    hurry = tmp_path / "hurry"
    number = start(cluster, tmp_path, paced("ft", tmp_path, hurry, 2))
    cluster.wait_for(
        number, lambda job: (job.state, job.held) == ("RUNNING", 2), "2 of 3 processors"
    )
    cluster.client.cancel(other)
    cluster.client.wait(other)
    cluster.client.resize(number, 7)
    cluster.wait_for(number, lambda job: job.processors == 4, "4 of 7 processors")
    hurry.touch()
    assert checksum(ends_well(cluster, number, tmp_path)) == checksum(alone)
    said = [event.text for event in cluster.history(number)]
    assert "the application answered COUNTER (4)" in said


def test_amr_asks_for_more_when_it_refines_and_gives_back_when_it_coarsens(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its ranks wait for the one with most blocks. MPICH polls without a pause otherwise.
    monkeypatch.setenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    words = ["--levels", "1", "--steps", "320", "--blocks", "20"]
    alone = run_python("-m", "pliant.examples.amr", *words).stdout
    argv = ["-m", "pliant.examples.amr", *words, "--pause", "0.03"]
    number = start(cluster, tmp_path, argv, prefer=1)
    text = ends_well(cluster, number, tmp_path)
    assert checksum(text) == checksum(alone)
    sizes = [len(event.data["processors"]) for event in cluster.history(number, "job.resized")]
    assert max(sizes) >= 3
    assert sizes[-1] == 1
    asked = [event.text for event in cluster.history(number, "request.received")]
    assert any("blocks" in text for text in asked)

"""A user's own cluster in an allocation of a real Slurm: `pliant up --inside-slurm`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from clusterkit.cluster import PATIENCE_S, PLIANT, Cluster
from clusterkit.counter import Counter
from pliant.client.api import Client
from pliant.client.cluster import process_table
from slurmkit import Slurm, why_missing
from testkit.processes import run_python
from testkit.waiting import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_missing()), reason=why_missing()),
]

MakeSlurm = Callable[[str], Slurm]


class InAllocation(Cluster):
    """A cluster that a job of Slurm brings up."""

    def __init__(self, base: Path, slurm: Slurm) -> None:
        super().__init__(base, 2, 2, "fcfs")
        self.slurm, self.job = slurm, ""
        self.nodes = base / "n"
        self.nodes.mkdir()
        self.script = base / "job.sh"

    def submit(self, limit: str, *words: str, then: str = "") -> None:
        """Submit a script that brings the cluster up, and wait until it serves users."""
        options = f"--inside-slurm --node-dir {self.nodes} --strategy fcfs {' '.join(words)}"
        self.script.write_text(
            f"#!/bin/sh\nexport FI_TCP_IFACE=lo\n{sys.executable} {' '.join(PLIANT)} "
            f"up {options}\necho code $?\n{then}\n"
        )
        self.job = self.slurm.submit(
            self.script, "--nodes=2", "--ntasks-per-node=2", f"--time={limit}"
        )
        wait_until(
            lambda: "up: 2 nodes" in self.output(), timeout=PATIENCE_S * 2, what="the cluster"
        )
        self.client.close()
        self.client = Client(str(self.run))

    def output(self) -> str:
        """Return what the script has printed."""
        log = self.script.with_suffix(".log")
        return log.read_text() if log.exists() else ""

    def wait_over(self) -> None:
        """Wait until the job of Slurm has ended; then nothing of the cluster may be left."""
        wait_until(
            lambda: self.slurm.is_over(self.job),
            timeout=PATIENCE_S * 3,
            every=1.0,
            what="the end of the job",
        )
        self.client.close()
        wait_until(
            lambda: self.processes() == [], timeout=PATIENCE_S, what="the end of all processes"
        )
        assert list(self.nodes.iterdir()) == []

    def processes(self) -> list[str]:
        """Return the processes of the cluster, jobs included."""
        found = []
        for pid in psutil.pids():
            env = process_table.environment(pid)
            places = (env.get("PLIANT_STATE_DIR", ""), env.get("PLIANT_TOKEN_FILE", ""))
            mine = process_table.program(pid).startswith("pliant.") or "PLIANT_JOB" in env
            if mine and any(place.startswith(str(self.base)) for place in places):
                found.append(" ".join(process_table.command_line(pid)))
        return found

    def _is_rank(self, env: dict[str, str], number: int) -> bool:
        own = env.get("PLIANT_TOKEN_FILE", "").startswith(f"{self.nodes}/")
        return own and env.get("PLIANT_JOB") == str(number) and "PLIANT_PROCESSOR" in env

    def continues_here(self, counter: Counter) -> None:
        """Let a saved job continue on this machine, and finish with the right data."""
        run_python(*PLIANT, "up", "--detach", "--nodes", "1", "--slots", "2", timeout=PATIENCE_S)
        try:
            self.client = Client(str(self.run))
            job = self.client.job(counter.id)
            assert not job.final, job.reason
            counter.finish()
        finally:
            self.client.close()
            run_python(*PLIANT, "down", timeout=PATIENCE_S)


@pytest.fixture
def make_slurm(state_dir: Path) -> Iterator[MakeSlurm]:
    made: list[Slurm] = []

    def make(proctrack: str) -> Slurm:
        made.append(Slurm(state_dir.parent / "slurm", proctrack))
        made[-1].up()
        return made[-1]

    yield make
    for slurm in made:
        slurm.down()


def test_a_job_is_resized_and_saved_before_the_allocation_ends(
    state_dir: Path, make_slurm: MakeSlurm, tmp_path: Path
) -> None:
    cluster = InAllocation(state_dir.parent, make_slurm("pgid"))
    cluster.submit("3", "--save-before", "2m")
    counter = Counter(cluster, tmp_path / "counter")
    rigid = cluster.client.submit("sleep", "1000", sizes="1", stdout="/dev/null")
    cluster.wait_malleable(counter.id)
    cluster.resize(counter.id, 3)
    assert {rank.node for rank in cluster.ranks(counter.id)} == {"n1", "n2"}
    cluster.slurm.call("scontrol", "update", f"JobId={cluster.job}", "TimeLimit=2")
    cluster.wait_over()
    said = cluster.output()
    assert "code 0" in said
    assert f"1 job saved, continue in the next cluster: {counter.id}" in said
    assert f"1 job cancelled: {rigid}" in said
    cluster.continues_here(counter)


@pytest.mark.parametrize("proctrack", ["pgid", "linuxproc"])
def test_nothing_outlives_a_job_that_is_cancelled(
    state_dir: Path, make_slurm: MakeSlurm, tmp_path: Path, proctrack: str
) -> None:
    cluster = InAllocation(state_dir.parent, make_slurm(proctrack))
    cluster.submit("10")
    counter = Counter(cluster, tmp_path / "counter")
    cluster.wait_malleable(counter.id)
    cluster.resize(counter.id, 4)
    cluster.slurm.call("scancel", cluster.job)
    cluster.wait_over()
    if proctrack == "pgid":  # only the first process of each task got the signal
        cluster.continues_here(counter)


def test_down_ends_the_nodes_and_the_script_goes_on(
    state_dir: Path, make_slurm: MakeSlurm, tmp_path: Path
) -> None:
    cluster = InAllocation(state_dir.parent, make_slurm("linuxproc"))
    done = tmp_path / "done"
    cluster.submit(
        "10",
        "--detach",
        then=f"while ! [ -e {done} ]; do sleep 0.1; done\n"
        f"{sys.executable} {' '.join(PLIANT)} down\necho down $?",
    )
    counter = Counter(cluster, tmp_path / "counter")
    cluster.wait_malleable(counter.id)
    done.touch()
    cluster.wait_over()
    assert "down: all is gone\ndown 0" in cluster.output()


def test_a_supervisor_that_is_killed_takes_the_nodes_with_it(
    state_dir: Path, make_slurm: MakeSlurm
) -> None:
    cluster = InAllocation(state_dir.parent, make_slurm("pgid"))
    cluster.submit("10")
    cluster.daemon("allocation").kill()
    wait_until(
        lambda: list(cluster.nodes.iterdir()) == [], timeout=PATIENCE_S, what="the nodes to end"
    )
    cluster.wait_over()
    assert "the daemon of the allocation has ended" in cluster.output()
    assert "code 1" in cluster.output()


def test_outside_of_an_allocation(state_dir: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    done = subprocess.run(
        [sys.executable, *PLIANT, "up", "--inside-slurm", "--detach"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "not inside an allocation" in done.stderr
    assert list(state_dir.iterdir()) == []

"""Jobs whose nodes get their files from the server: one cluster for all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from pliant.nodectl.shim.staging.staged_folder import WORK
from testkit.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with running_cluster("fcfs") as cluster:
        yield cluster


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.txt").write_text("hello\n")
    return tmp_path


def jobsub(cluster: Cluster, work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PLIANT_RUN_DIR": str(cluster.run),
        "PLIANT_STATE_DIR": str(cluster.state),
    }
    command = [sys.executable, "-m", "pliant.client.commands.jobsub", *words]
    return subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def script(work: Path, text: str) -> str:
    path = work / "job.sh"
    path.write_text(f"#!/bin/sh\n{text}")
    return str(path)


def is_clean() -> bool:
    return not list(Path("/tmp").glob(f"pliant-stage-{os.getuid()}/*.j*/work"))


def test_outputs_come_back_after_a_failure_too(cluster: Cluster, work: Path) -> None:
    program = script(
        work, "pwd; cat data/in.txt; echo new >> data/in.txt; echo x > r.dat; echo y > t; exit 5\n"
    )
    done = jobsub(cluster, work, "--wait", "--stage", "data", "-o", "log", program)
    assert done.returncode == 5, done.stderr
    where, greeting = (work / "log").read_text().splitlines()
    assert where != str(work)
    assert greeting == "hello"
    assert (work / "data" / "in.txt").read_text() == "hello\nnew\n"
    assert (work / "r.dat").exists()
    assert (work / "t").exists()
    assert not Path(where).exists()


def test_patterns_select_outputs_and_directives_name_files(cluster: Cluster, work: Path) -> None:
    program = script(work, "#JOB --stage data --stage-out *.dat\necho x > r.dat; echo y > t\n")
    done = jobsub(cluster, work, "--wait", program)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in work.iterdir()) == ["data", "job.sh", "r.dat"]


def test_ranks_of_a_step_on_both_nodes_find_the_files(cluster: Cluster, work: Path) -> None:
    (work / "rank.py").write_text(
        "from mpi4py import MPI\nc = MPI.COMM_WORLD\n"
        "open(f'part{c.rank}', 'w').write(open('data/in.txt').read())\n"
    )
    program = script(work, f"pliant run -n 4 {sys.executable} rank.py\n")
    done = jobsub(cluster, work, "--wait", "-n", "4", "--stage", "data,rank.py", program)
    assert done.returncode == 0, done.stderr
    assert [(work / f"part{rank}").read_text() for rank in range(4)] == ["hello\n"] * 4


def test_outputs_survive_a_restart_of_controller_and_server(cluster: Cluster, work: Path) -> None:
    program = script(work, "touch started; while [ ! -e go ]; do sleep 0.1; done; echo x > r\n")
    done = jobsub(cluster, work, "--stage", "data", program)
    number = int(done.stdout)
    cluster.wait_for(number, lambda job: job.state == "RUNNING", "the start")
    folders = Path(f"/tmp/pliant-stage-{os.getuid()}")
    pattern = f"*.j{number}.r1/{WORK}/started"
    found = wait_until(lambda: list(folders.glob(pattern)), what="the script to run")
    folder = (found or list(folders.glob(pattern)))[0].parent
    cluster.kill("node-n1")
    cluster.kill("node-n2")
    cluster.kill("server")
    (folder / "go").touch()
    wait_until((folder / "r").exists, what="the end of the script")
    cluster.up()
    job = cluster.wait_for(number, lambda job: job.final, "the end")
    assert job.state == "COMPLETED", job
    assert (work / "r").exists()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--stage", "nothing"), "nothing"),
        (("--stage", ".."), "working directory"),
        (("--stage-out", "*.dat"), "--stage"),
        (("--stage", "data", "--array", "1-3"), "array"),
    ],
    ids=["missing", "outside", "patterns-only", "array"],
)
def test_wrong_options_are_refused(
    cluster: Cluster, work: Path, words: tuple[str, ...], field: str
) -> None:
    done = jobsub(cluster, work, *words, script(work, "true\n"))
    assert done.returncode in {1, 2}
    assert field in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_folder_names_node_path_and_remedy(cluster: Cluster, work: Path) -> None:
    gone = work / "gone"
    gone.mkdir()
    number = cluster.client.submit("sleep", "0", type="script", chdir=str(gone), hold=True)
    gone.rmdir()
    cluster.client.release(number)
    job = cluster.wait_for(number, lambda job: job.final, "the end")
    assert job.state == "FAILED"
    for word in ("node n", str(gone), "--stage"):
        assert word in job.reason, job.reason

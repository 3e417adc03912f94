"""Scripts with several processors, and programs of Open MPI, on a real cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.shared import running_cluster
from testkit import MPIEXEC, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(120)]

HELLO = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("rank %d of %d\n", rank, size);
    MPI_Finalize();
    return 0;
}
"""

#: Open MPI refuses to run as root without these.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

MPICC = str(Path(sysconfig.get_path("scripts")) / "mpicc")


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", "kill_grace_s: 1.0\n", slots=3) as cluster:
        yield cluster


def compiled(folder: Path, compiler: str) -> Path:
    """Compile a program that prints its rank, or skip the test."""
    if shutil.which(compiler) is None or shutil.which("gcc") is None:
        pytest.skip(f"{compiler} and gcc are not installed")
    (folder / "hello.c").write_text(HELLO)
    subprocess.run([compiler, "hello.c", "-o", "hello"], cwd=folder, check=True)
    return folder / "hello"


def of_size(size: int) -> list[str]:
    return [f"rank {rank} of {size}" for rank in range(size)]


def test_a_script_has_the_processors_that_it_names(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        '#JOB -n 5\necho "$PLIANT_PROCESSORS"\ntr "\\n" " " < "$PLIANT_HOST_FILE"\nexit 4\n'
    )
    said = run_command("jobsub", "--wait", "job.sh", cwd=tmp_path)
    assert said.code == 4
    job = cluster.client.job(int(said.out))
    assert (job.state, len(job.nodes)) == ("FAILED", 2)
    lines = Path(job.stdout).read_text().splitlines()
    assert (len(lines[0].split(",")), lines[1]) == (5, "127.0.0.1 slots=5 ")


def test_processes_that_a_script_leaves_end_with_it(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("(setsid sleep 600 &)\n(setsid sleep 600 &)\n")
    said = run_command("jobsub", "--wait", "-n", "6", "job.sh", cwd=tmp_path)
    assert said.code == 0
    assert cluster.ranks(int(said.out)) == []


def test_mpiexec_in_a_script_uses_all_processors(cluster: Cluster, tmp_path: Path) -> None:
    program = compiled(tmp_path, MPICC)
    (tmp_path / "job.sh").write_text(f"{MPIEXEC} {program}\n")
    said = run_command("jobsub", "--wait", "-n", "5", "job.sh", cwd=tmp_path)
    assert said.code == 0
    output = Path(cluster.client.job(int(said.out)).stdout).read_text()
    assert sorted(output.splitlines()) == of_size(5)


@pytest.mark.parametrize("in_script", [False, True])
def test_open_mpi_starts_its_own_ranks(cluster: Cluster, tmp_path: Path, in_script: bool) -> None:
    program = compiled(tmp_path, "mpicc.openmpi")
    (tmp_path / "job.sh").write_text(f"mpirun.openmpi {program}\n")
    size = 5 if in_script else 3
    word = "job.sh" if in_script else str(program)
    said = run_command("jobsub", "--wait", "-n", str(size), word, cwd=tmp_path, env=AS_ROOT)
    job = cluster.client.job(int(said.out))
    assert said.code == 0, Path(job.stdout).read_text()
    assert sorted(Path(job.stdout).read_text().splitlines()) == of_size(size)


@pytest.mark.usefixtures("cluster")
def test_open_mpi_on_several_nodes_is_refused(tmp_path: Path) -> None:
    program = compiled(tmp_path, "mpicc.openmpi")
    said = run_command("jobsub", "--wait", "-n", "4", str(program), cwd=tmp_path, env=AS_ROOT)
    assert said.code == 126
    assert "libmpi.so.40" in said.line


def test_mpi4py_with_open_mpi_fails(cluster: Cluster, tmp_path: Path) -> None:
    """Each rank would be rank 0 of its own world, and end with success."""
    compiled(tmp_path, "mpicc.openmpi")
    text = "from mpi4py import MPI; print(MPI.COMM_WORLD.size); import time; time.sleep(0.3)"
    environment = {**AS_ROOT, "MPI4PY_LIBMPI": "libmpi.so.40"}
    words = ["jobsub", "--wait", "-n", "3", "python", "-c", text]
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    said = run_command(*words, cwd=tmp_path, env={**environment, "PATH": path})
    assert said.code == 1
    assert "libmpi.so.40" in said.line
    assert cluster.client.job(int(said.out)).state == "FAILED"


# -------------------------------------------------------------------- pliant run


def test_steps_in_a_script(cluster: Cluster, tmp_path: Path) -> None:
    command = f"{sysconfig.get_path('scripts')}/pliant run"
    (tmp_path / "job.sh").write_text(
        f"#JOB -n 3\necho before\n{command} -n 2 echo side & {command} -n 1 echo side\nwait\n"
        f"{command} sh -c 'exit 6'\n"
    )
    said = run_command("jobsub", "--wait", "job.sh", cwd=tmp_path)
    assert said.code == 6
    lines = Path(cluster.client.job(int(said.out)).stdout).read_text().splitlines()
    assert lines[:4] == ["before", "side", "side", "side"]


@pytest.mark.usefixtures("cluster")
def test_an_interactive_job_shows_its_output(tmp_path: Path) -> None:
    here, marks = tmp_path / "here", tmp_path / "marks"
    here.mkdir()
    marks.mkdir()
    # The first process that fails ends the others, so each waits until all have printed.
    script = f"""
        echo out; echo err >&2; mktemp -p {marks} >{os.devnull}
        until [ $(ls {marks} | wc -l) -eq 4 ]; do sleep 0.1; done
        exit 3
    """
    said = run_command("pliant", "run", "-n", "4", "sh", "-c", script, cwd=here)
    assert (said.code, said.out) == (3, "out\n" * 4)
    assert said.err.count("err\n") == 4
    assert "FAILED" in said.err
    assert list(here.iterdir()) == []


def test_ctrl_c_cancels_an_interactive_job(cluster: Cluster, tmp_path: Path) -> None:
    with subprocess.Popen(
        [f"{sysconfig.get_path('scripts')}/pliant", "run", "sh", "-c", "echo up; sleep 600"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert b"CANCELLED" in error
    assert b"Traceback" not in error
    assert process.returncode == 130
    assert all(job.final for job in cluster.client.jobs(ended=True))


def test_ctrl_c_leaves_a_job_that_jobsub_waits_for(cluster: Cluster, tmp_path: Path) -> None:
    with subprocess.Popen(
        [f"{sysconfig.get_path('scripts')}/jobsub", "--wait", "sleep", "600"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        wait_until(lambda: cluster.client.job(number).state == "RUNNING", timeout=60)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert error.decode() == f"jobsub: job {number} goes on; cancel it with `jobdel {number}`\n"
    assert process.returncode == 130
    assert cluster.client.job(number).state == "RUNNING"
    cluster.client.cancel(number)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("option", ["--output=x", "--stage=x", "--hold", "--json"])
def test_options_without_meaning_are_refused(tmp_path: Path, option: str) -> None:
    said = run_command("pliant", "run", option, "true", cwd=tmp_path)
    assert said.code == 2
    assert option.partition("=")[0] in said.line


def test_an_mpi_step_on_two_nodes_survives_the_server(cluster: Cluster, tmp_path: Path) -> None:
    """The step begins before the server is killed, and ends while it is away or back."""
    program = (
        "import os, time\n"
        "from mpi4py import MPI\n"
        "comm = MPI.COMM_WORLD\n"
        "open(f'up.{comm.rank}', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "print(comm.allreduce(1), os.environ['PLIANT_NODE'])\n"
    )
    (tmp_path / "program.py").write_text(program)
    command = f"{sysconfig.get_path('scripts')}/pliant run"
    (tmp_path / "job.sh").write_text(f"{command} {sys.executable} program.py\n")
    number = cluster.client.submit(str(tmp_path / "job.sh"), sizes="5", chdir=str(tmp_path))
    wait_until(lambda: all((tmp_path / f"up.{rank}").exists() for rank in range(5)), timeout=60)
    cluster.kill("server")
    (tmp_path / "go").touch()
    cluster.up()
    job = cluster.wait_for(number, lambda job: job.final, "the end")
    lines = Path(job.stdout).read_text().splitlines()
    assert (job.state, {line.split()[0] for line in lines}) == ("COMPLETED", {"5"})
    assert {line.split()[1] for line in lines} == {"n1", "n2"}
    (found,) = json.loads(run_command("jobacct", "--json", str(number)).out)
    (step,) = found["steps"]
    assert (step["step"], step["processors"], step["exit_code"], step["signal"]) == (1, 5, 0, 0)
    assert job.start <= step["start"] <= step["end"] <= job.end

"""Ordinary jobs, as users submit them: codes, signals, files, limits, and nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster, gone
from clusterkit.commands import run_command
from clusterkit.shared import running_cluster
from pliant.client.api import Job
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(120)]

WORLD = """
import os
from mpi4py import MPI
comm = MPI.COMM_WORLD
nodes = comm.gather(os.environ["PLIANT_NODE"])
total = comm.allreduce(comm.rank)
if comm.rank == 0:
    print("size", comm.size, "sum", total, "nodes", *sorted(nodes))
"""

#: Leaves its session and its parents: only who looks for descendants finds it.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""

#: One rank gives up, and is the last to go: the others are gone before it.
GIVES_UP = """
import signal, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    comm.Abort(9)
time.sleep(600)
"""

#: One rank fails alone, the others wait for it.
RAISES = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank == 1:
    raise ValueError("no more")
comm.Barrier()
"""

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
time.sleep(600)
"""


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", "kill_grace_s: 1.0\n") as cluster:
        yield cluster


def submit(cluster: Cluster, folder: Path, *argv: str, **options: object) -> int:
    return cluster.client.submit(*argv, chdir=str(folder), **options)  # type: ignore[arg-type]


def end(cluster: Cluster, number: int) -> Job:
    """Return the job when it has ended; its output is complete."""
    return cluster.wait_for(number, lambda job: job.final, f"job {number} to end")


def wait_running(cluster: Cluster, number: int) -> None:
    cluster.wait_for(number, lambda job: job.state == "RUNNING", f"job {number} to run")


# -------------------------------------------------------------------- how it ends


@pytest.mark.parametrize("size", ["1", "4"])
def test_the_code_of_a_job_is_its_own(cluster: Cluster, tmp_path: Path, size: str) -> None:
    said = run_command("jobsub", "--wait", "-n", size, "sh", "-c", "exit 7", cwd=tmp_path)
    assert said.code == 7
    number = int(said.out)
    assert said.line.startswith(f"jobsub: job {number} ended FAILED: exit code 7 on n")
    job = cluster.client.job(number)
    assert (job.state, job.exit_code, job.signal or 0) == ("FAILED", 7, 0)


@pytest.mark.parametrize(
    ("text", "runner", "code"),
    [(GIVES_UP, (), 9), (RAISES, (), 1), (RAISES, ("-m", "mpi4py"), 1)],
)
def test_the_code_is_that_of_the_rank_that_failed_and_not_of_the_clean_up(
    cluster: Cluster, tmp_path: Path, text: str, runner: tuple[str, ...], code: int
) -> None:
    (tmp_path / "fails.py").write_text(text)
    command = [sys.executable, *runner, "fails.py"]
    said = run_command("jobsub", "--wait", "-n", "4", *command, cwd=tmp_path)
    assert said.code == code
    job = cluster.client.job(int(said.out))
    assert (job.name, job.exit_code, job.signal or 0) == ("fails.py", code, 0)
    assert len(job.nodes) == 2


def test_a_job_that_a_signal_ends(cluster: Cluster, tmp_path: Path) -> None:
    said = run_command("jobsub", "--wait", "sh", "-c", "kill -SEGV $$", cwd=tmp_path)
    assert said.code == 128 + signal.SIGSEGV
    job = cluster.client.job(int(said.out))
    assert (job.state, job.signal) == ("FAILED", signal.SIGSEGV)
    assert f"killed by signal {signal.SIGSEGV:d}" in job.reason


def test_a_job_that_ends_well(cluster: Cluster, tmp_path: Path) -> None:
    said = run_command("jobsub", "--wait", "true", cwd=tmp_path)
    assert (said.code, said.err) == (0, "")
    assert cluster.client.job(int(said.out)).state == "COMPLETED"


def test_a_program_that_goes_away_before_it_starts(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    number = submit(cluster, tmp_path, str(program), hold=True)
    program.unlink()
    cluster.client.release(number)
    job = end(cluster, number)
    assert (job.state, job.exit_code) == ("FAILED", 127)
    assert str(program) in job.reason


def test_a_folder_that_goes_away_before_it_starts(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    number = submit(cluster, folder, "true", hold=True, stdout=str(tmp_path / "out"))
    folder.rmdir()
    cluster.client.release(number)
    job = end(cluster, number)
    assert job.state == "FAILED"
    assert str(folder) in job.reason


def test_the_time_limit(cluster: Cluster, tmp_path: Path) -> None:
    said = run_command("jobsub", "--wait", "--time", "1s", "sleep", "600", cwd=tmp_path)
    assert said.code != 0
    assert "TIMEOUT" in said.line
    job = cluster.client.job(int(said.out))
    assert job.state == "TIMEOUT"
    assert job.end is not None
    assert job.start is not None
    assert job.end - job.start >= 1.0


# -------------------------------------------------------------------- where it runs


@pytest.mark.usefixtures("cluster")
def test_folder_environment_and_files_are_the_submitters(tmp_path: Path) -> None:
    script = "pwd; echo $FRUIT; echo oops >&2; cat; umask"
    (tmp_path / "in").write_text("from the input\n")
    said = run_command(
        *("jobsub", "--wait", "-i", "in", "-o", "out-%j", "sh", "-c", script),
        cwd=tmp_path,
        env={"FRUIT": "quince & pear"},
    )
    assert said.code == 0, said
    output = (tmp_path / f"out-{said.out.strip()}").read_text().splitlines()
    assert output[:4] == [str(tmp_path), "quince & pear", "oops", "from the input"]


def test_output_goes_to_one_file_named_by_the_job(cluster: Cluster, tmp_path: Path) -> None:
    number = submit(cluster, tmp_path, "sh", "-c", "echo $PLIANT_NODE", sizes="4")
    assert end(cluster, number).state == "COMPLETED"
    lines = (tmp_path / f"pliant-{number}.out").read_text().split()
    assert sorted(lines) == ["n1", "n1", "n2", "n2"]


def test_a_script_runs_once(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#JOB --name trial\necho once\nexit 3\n")
    said = run_command("jobsub", "--wait", "run.sh", cwd=tmp_path)
    assert said.code == 3
    job = cluster.client.job(int(said.out))
    assert (job.type, job.name) == ("script", "trial")
    assert Path(job.stdout).read_text() == "once\n"


def test_an_ordinary_mpi_program_over_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    number = submit(cluster, tmp_path, sys.executable, "-c", WORLD, sizes="4")
    job = end(cluster, number)
    assert job.state == "COMPLETED", cluster.report(number)
    assert Path(job.stdout).read_text() == "size 4 sum 6 nodes n1 n1 n2 n2\n"


# -------------------------------------------------------------------- ending it


def test_jobdel_of_a_waiting_job(cluster: Cluster, tmp_path: Path) -> None:
    first = submit(cluster, tmp_path, "sleep", "600", sizes="4")
    second = submit(cluster, tmp_path, "true", sizes="4")
    wait_running(cluster, first)
    assert cluster.client.job(second).state == "PENDING"
    assert run_command("jobdel", str(second)).code == 0
    job = end(cluster, second)
    assert (job.state, job.start) == ("CANCELLED", None)
    assert run_command("jobdel", str(first)).code == 0
    assert end(cluster, first).state == "CANCELLED"


def test_jobdel_of_a_job_that_ignores_term(cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    number = submit(cluster, tmp_path, sys.executable, "-c", STUBBORN, str(mark))
    wait_until(mark.exists)
    ranks = cluster.ranks(number)
    assert run_command("jobdel", str(number)).code == 0
    job = end(cluster, number)
    assert (job.state, len(ranks)) == ("CANCELLED", 1)
    assert all(gone(rank.process) for rank in ranks)


def test_jobdel_before_anything_runs(cluster: Cluster, tmp_path: Path) -> None:
    numbers = [submit(cluster, tmp_path, "sleep", "600", sizes="4") for _ in range(3)]
    cluster.client.cancel(*numbers)
    assert {end(cluster, number).state for number in numbers} == {"CANCELLED"}


def test_hold_and_release(cluster: Cluster, tmp_path: Path) -> None:
    said = run_command("jobsub", "--hold", "true", cwd=tmp_path)
    number = int(said.out)
    assert cluster.client.job(number).state == "HELD"
    assert "HELD" in run_command("jobctl", "why", str(number)).out
    other = submit(cluster, tmp_path, "true")
    assert end(cluster, other).state == "COMPLETED"
    assert cluster.client.job(number).state == "HELD"
    assert run_command("jobctl", "release", str(number)).code == 0
    assert end(cluster, number).state == "COMPLETED"


# -------------------------------------------------------------------- nothing is left behind


@pytest.mark.case(44)
def test_a_child_that_became_a_daemon_ends_with_its_job(cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    number = submit(cluster, tmp_path, sys.executable, "-c", DAEMON, str(mark))
    job = end(cluster, number)
    assert job.state == "COMPLETED", cluster.report(number)
    assert not psutil.pid_exists(int(mark.read_text()))


def test_a_background_child_ends_with_its_script(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("sleep 600 &\necho $! > pid\n")
    number = int(run_command("jobsub", "run.sh", cwd=tmp_path).out)
    assert end(cluster, number).state == "COMPLETED"
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.case(62)
def test_a_burst_of_short_jobs(cluster: Cluster, tmp_path: Path) -> None:
    kinds = ["uni", "mpi", "script"]
    numbers = [
        submit(cluster, tmp_path, "true", type=kinds[i % 3], sizes="1", stdout="/dev/null")
        for i in range(50)
    ]
    assert numbers == sorted(set(numbers))
    wait_until(lambda: all(j.final for j in cluster.client.jobs(numbers)), timeout=90)
    assert {job.state for job in cluster.client.jobs(numbers)} == {"COMPLETED"}
    idle(cluster)
    spools = list(cluster.state.glob("node-*/spool/*"))
    wait_until(lambda: not [path for path in spools if path.exists()], what="an empty spool")


def test_output_files_are_emptied_at_the_start_of_a_new_job_only(
    cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("of an earlier job\n" * 50)
    # A node cannot tell lines of just before the start from the first ones of another node.
    os.utime(out, (time.time() - 60,) * 2)
    argv = ("sh", "-c", "echo $PLIANT_JOB")
    first = end(cluster, submit(cluster, tmp_path, *argv, sizes="4", stdout="out"))
    assert len(first.nodes) == 2
    assert out.read_text() == f"{first.id}\n" * 4
    second = end(
        cluster, submit(cluster, tmp_path, *argv, sizes="1", stdout="out", open_mode="append")
    )
    assert out.read_text() == f"{first.id}\n" * 4 + f"{second.id}\n"
    waits = 'echo "run $PLIANT_RUN"; [ "$PLIANT_RUN" = 2 ] || exec sleep 600'
    third = submit(cluster, tmp_path, "sh", "-c", waits, sizes="1", stdout="out")
    wait_until(lambda: out.read_text() == "run 1\n")
    cluster.client.requeue(third)
    assert end(cluster, third).state == "COMPLETED"
    assert out.read_text() == "run 1\nrun 2\n"

"""Malleable steps of scripts on a real cluster: they use what the other steps leave free."""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.shared import running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(180)]

SCRIPTS = sysconfig.get_path("scripts")
RUN = f"{SCRIPTS}/pliant run"

#: Writes each size that it has, with the number of the step. The file ``stop`` ends it.
PROGRAM = """
import os, time
import numpy as np
from pliant.appkit import malleable

@malleable(sizes="1-4")
def main(job):
    numbers = job.block("numbers", 100, init=lambda index: np.arange(100.0)[index])
    job.on_offer(lambda offer: True)  # without a test that growing saves time
    seen = []
    for _ in job.steps(1_000_000):
        if job.comm.rank == 0 and seen[-1:] != [job.comm.size]:
            seen.append(job.comm.size)
            with open("sizes", "a") as file:
                file.write(f"{job.comm.size} {os.environ['PLIANT_STEP']}\\n")
        time.sleep(0.005)
        if job.comm.bcast(os.path.exists("stop")):
            break
        if os.path.exists("die"):
            os._exit(7)
    total = job.comm.allreduce(numbers.local.sum())
    if job.comm.rank == 0:
        print("sum", total, "size", job.comm.size, flush=True)

main()
"""

#: Waits until the step has a size, and sets its number.
WAIT = (
    'wait_for() { size=; until [ "$size" = $1 ]; do\n'
    "sleep 0.05; [ -e sizes ] && read -r size step <<. || true\n"
    "$(tail -n 1 sizes)\n.\ndone; }\n"
)


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Cluster]:
    with running_cluster("fcfs", "kill_grace_s: 1.0\n", slots=2) as cluster:
        yield cluster


def submitted(folder: Path, text: str, size: str = "4") -> int:
    """Submit a script; return its number."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "job.sh").write_text(WAIT + text)
    said = run_command("jobsub", "-n", size, "job.sh", cwd=folder)
    assert said.code == 0, said
    return int(said.out)


def lines_of(cluster: Cluster, number: int) -> list[str]:
    """Return the output of a job that ends with success."""
    job = cluster.wait_for(number, lambda job: job.final, "the end")
    text = Path(job.stdout).read_text()
    assert job.state == "COMPLETED", text
    return text.splitlines()


def test_a_malleable_step_grows_and_shrinks_within_the_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The issue's script: before, two steps side by side, a malleable step, after."""
    program = f"{sys.executable} program.py"
    number = submitted(
        tmp_path,
        f"{RUN} -n 1 echo before\n"
        f"{RUN} -n 2 sh -c 'touch up; until [ -e side ]; do sleep 0.05; done' &\n"
        "until [ -e up ]; do sleep 0.05; done\n"
        f"{RUN} --size 1-4 {program} & pid=$!\n"
        "wait_for 2; touch side\n"  # the processors of the first one
        "wait_for 4\n"
        f"{RUN} -n 2 echo between; wait_for 4\n"
        f"{SCRIPTS}/jobctl resize $PLIANT_JOB.$step 3; wait_for 3\n"
        f"{SCRIPTS}/jobctl resize $PLIANT_JOB.$step 5 || echo code $?\n"
        f"{SCRIPTS}/jobctl resize $PLIANT_JOB.9 1 || echo code $?\n"
        "wait_for 1\n"  # this size is set outside of the script
        "touch stop; wait $pid; echo ended $?\n"
        f"{RUN} -n 4 echo after\n",
    )
    sizes = tmp_path / "sizes"
    cluster.wait_for(number, lambda _: sizes.exists() and "\n3 " in sizes.read_text(), "size 3")
    name = f"{number}.{sizes.read_text().split()[-1]}"
    assert "sizes" in run_command("jobctl", "resize", name, "5").line
    assert "running steps" in run_command("jobctl", "resize", f"{number}.9", "1").line
    assert run_command("jobctl", "resize", name, "1").code == 0
    lines = lines_of(cluster, number)
    assert lines[0] == "before"
    assert lines.count("between") == 2
    assert lines.count("code 1") == 2
    assert "sum 4950.0 size 1" in lines
    assert lines[-5:] == ["ended 0", *["after"] * 4]
    (record,) = json.loads(run_command("jobacct", "--json", str(number)).out)
    steps = {each["step"]: each for each in record["steps"]}
    seen = [line.split() for line in (tmp_path / "sizes").read_text().splitlines()]
    assert [int(size) for size, _ in seen] == [2, 4, 2, 4, 3, 1]
    step = steps[int(seen[0][1])]
    assert [phase["processors"] for phase in step["phases"]] == [2, 4, 2, 4, 3, 1]
    assert step["processors"] == 4
    used = sum(phase["processors"] * (phase["end"] - phase["start"]) for phase in step["phases"])
    assert step["processor_s"] == pytest.approx(used)
    text = run_command("jobacct", "--steps", str(number)).out
    assert "2 for" in next(line for line in text.splitlines() if "python" in line)


@pytest.mark.parametrize(
    ("sizes", "code", "word"), [("5-8", 1, "more than the 4"), ("x", 2, "--size"), ("6", 1, "4")]
)
def test_sizes_that_do_not_fit_are_refused(
    cluster: Cluster, tmp_path: Path, sizes: str, code: int, word: str
) -> None:
    lines = lines_of(
        cluster, submitted(tmp_path, f"{RUN} --size {sizes} true 2>&1; echo code $?; exit 0\n")
    )
    assert lines[-1] == f"code {code}"
    assert word in lines[0]


def test_a_coordinator_that_dies_ends_its_step(cluster: Cluster, tmp_path: Path) -> None:
    number = submitted(
        tmp_path,
        f"{RUN} --size 1-4 {sys.executable} program.py & pid=$!\n"
        "wait_for 4; touch die; wait $pid; echo code $?; rm die\n"
        f"{RUN} -n 4 echo after\n",
    )
    lines = lines_of(cluster, number)
    assert lines[-5:] == ["code 7", *["after"] * 4]


def test_the_server_is_killed_during_a_resize(cluster: Cluster, tmp_path: Path) -> None:
    number = submitted(
        tmp_path,
        f"{RUN} -n 3 sh -c 'touch up; until [ -e side ]; do sleep 0.05; done' &\n"
        "until [ -e up ]; do sleep 0.05; done\n"
        f"{RUN} --size 1-4 {sys.executable} program.py & pid=$!\n"
        "wait_for 1; touch side; wait_for 4; touch stop; wait $pid; echo code $?\n",
    )
    cluster.wait_for(number, lambda _: (tmp_path / "side").exists(), "the growth")
    cluster.kill("server")
    cluster.up()
    assert lines_of(cluster, number)[-1] == "code 0"


def test_a_step_that_runs_at_the_end_of_the_script_ends(cluster: Cluster, tmp_path: Path) -> None:
    number = submitted(
        tmp_path,
        f"{RUN} --size 1-4 {sys.executable} program.py &\nwait_for 4\n",
    )
    lines_of(cluster, number)
    assert cluster.ranks(number) == []


def test_the_strategy_chooses_the_size_of_a_script(cluster: Cluster, tmp_path: Path) -> None:
    number = submitted(tmp_path, 'echo "$PLIANT_PROCESSORS"\n', "2-9")
    (line,) = lines_of(cluster, number)
    job = cluster.client.job(number)
    assert (len(line.split(",")), job.class_) == (4, "moldable")

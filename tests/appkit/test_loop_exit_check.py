"""A break that only some processes take, and sizes that mpiexec does not keep to."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from standin import Application
from testkit import run_python

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

Run = Callable[..., Application]

PROGRAM = """
from pliant.appkit import malleable

@malleable(sizes="2-4")
def main(job):
    for it in job.steps(10, every=20):
        if it == STOP: break
    for it in job.steps(3):
        pass
    print("done", flush=True)

main()
"""


def mpiexec(size: int, stop: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.replace("STOP", stop)
    command = [str(Path(sysconfig.get_path("scripts")) / "mpiexec"), "-n", str(size)]
    return subprocess.run(
        [*command, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_leaving_at_different_iterations_is_an_error() -> None:
    done = mpiexec(3, "4 + (job.comm.rank == 1)")
    assert done.returncode != 0
    assert "LoopError" in done.stderr
    assert "different iterations (4 to 5" in done.stderr
    assert "done" not in done.stdout


def test_leaving_together_is_fine() -> None:
    done = mpiexec(2, "4")
    assert (done.returncode, done.stdout) == (0, "done\n" * 2), done.stderr


def test_mpiexec_with_a_size_that_is_not_one_of_the_programs() -> None:
    done = mpiexec(5, "4")
    assert done.returncode != 0
    assert "sizes='2-4' does not include 5 processes" in done.stderr
    alone = run_python("-c", PROGRAM.replace("STOP", "4"))
    assert alone.stdout == "done\n"
    assert "does not include 1 process" in alone.stderr


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_break_on_one_process_only_ends_the_job_with_the_reason(run: Run, rank: int) -> None:
    app = run(
        f"""
        for it in job.steps(10**9):
            if job.comm.rank == {rank} and it == 5: break
            time.sleep(0.001)
        """,
        size=3,
    )
    codes = app.wait()
    assert any(codes), codes
    assert "LoopError" in app.text()
    assert "a break must depend on a value that is equal on all processes" in app.text()

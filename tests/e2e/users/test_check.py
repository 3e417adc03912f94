"""`pliant check` on a good program and on bad ones, with real processes."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(240)]

PROGRAM = """
import sys
from mpi4py import MPI
from pliant.appkit import malleable

@malleable(sizes="1-8")
def main(job):
    s = job.state(total=0)
    count = 0
    {before}
    for it in job.steps(40):
        {inside}
        s.total += 1
        count += 1
    shown = {shown}
    everybody = job.comm.allreduce(shown, MPI.MAX), job.comm.allreduce(shown, MPI.MIN)
    elapsed = MPI.Wtime() - t0
    if job.first:
        print("counted", *everybody)
        print("seconds", elapsed)

main()
"""
#: A difference shows on few processes, whose start takes most of the time.
SMALL = ("--sizes", "1-2")
GOOD = {"before": "t0 = MPI.Wtime()", "inside": "pass", "shown": "s.total"}


def check(folder: Path, *words: str, **parts: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM.format(**{**GOOD, **parts}))
    pliant = Path(sysconfig.get_path("scripts")) / "pliant"
    return subprocess.run(
        [sys.executable, str(pliant), "check", *words, str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_a_good_program_passes(tmp_path: Path) -> None:
    done = check(tmp_path, *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resized 1 -> 2 -> 1 -> 2 processes: exit code 0" in done.stdout


def test_a_variable_of_the_first_iteration_is_named(tmp_path: Path) -> None:
    done = check(tmp_path, *SMALL, before="pass", inside="if it == 0: t0 = MPI.Wtime()")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "'t0' is set in the first iteration only" in done.stdout
    assert "variable 't0': a joining rank does not have it" in done.stdout


def test_a_result_that_depends_on_a_plain_variable_is_shown(tmp_path: Path) -> None:
    done = check(tmp_path, *SMALL, shown="count")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "undisturbed 'counted 40 40'" in done.stdout
    assert "job.state" in done.stdout


def test_wrong_usage(tmp_path: Path) -> None:
    done = check(tmp_path, "--sizes", "4-2")
    assert (done.returncode, "--sizes 4-2" in done.stderr) == (2, True)

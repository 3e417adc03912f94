"""Real processes that save themselves and go on at other sizes; ordinary MPI programs suffice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

PROGRAM = """
import os, sys
import numpy as np
from pliant.appkit import malleable

stop, unlucky = int(sys.argv[1]), len(sys.argv) > 2

class Unlucky:
    def __reduce__(self):
        raise RuntimeError("no such luck")

@malleable()
def main(job):
    first, origin = job.once(lambda: (os.getpid(), job.comm.size))
    rows = job.block("rows", (23, 4), halo=1, init=lambda i: np.arange(92.0).reshape(23, 4)[i])
    cells = np.arange(150.0).reshape(3, 50)
    columns = job.block("columns", (3, 50), axis=1, init=lambda index: cells[index])
    table = job.replicated("table", 5, init=lambda: np.arange(5.0))
    fixed = job.items("fixed", "i8", init=lambda rank, size: [rank] * 3, constant=True)
    state = job.state(count=0, thing=None)
    if unlucky and not job.joining:
        state.thing = Unlucky()
    ring = job.derive(lambda comm: comm.Create_cart([comm.size]))
    seen = []
    job.after_resize(lambda change: seen.append((change.resize, change.committed)))
    for _ in job.steps(3):
        rows.local += 1
    if not job.joining:
        columns.local *= 2
    for it in job.steps(12, every=5, save_every=4):
        if it == stop:
            sys.exit(7)
        rows.local += 1
        table.local += 1
        state.count += it
        assert ring.comm.size == job.comm.size
        assert not fixed.local.flags.writeable
        assert job.comm.allreduce(len(fixed)) == 3 * origin
    total = job.comm.allreduce(float(rows.local.sum() + columns.local.sum()))
    if job.first:
        print(total, table.local.tolist(), state.count, flush=True)
        print(seen, first == os.getpid(), file=sys.stderr, flush=True)

main()
"""
UNDISTURBED = "27916.0 [12.0, 13.0, 14.0, 15.0, 16.0] 66\n"


def run(
    folder: Path, size: int, *words: str, text: str = PROGRAM
) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(text)
    mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
    environment = {**os.environ, "PLIANT_CHECKPOINT": str(folder / "save")}
    environment.pop("PLIANT_JOB", None)
    return subprocess.run(
        [mpiexec, "-n", str(size), sys.executable, path, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env=environment,
    )


@pytest.mark.parametrize(("before", "after"), [(2, 5), (4, 3), (3, 3)])
def test_a_program_that_was_ended_goes_on_at_another_size(
    tmp_path: Path, before: int, after: int
) -> None:
    assert run(tmp_path, before, "10").returncode != 0
    again = run(tmp_path, after, "-1")
    assert again.returncode == 0, again.stderr
    assert again.stdout == UNDISTURBED
    assert "[(0, True)] False" in again.stderr  # it came back; once ran in the first start
    assert sorted(os.listdir(tmp_path / "save")) == ["manifest.json", "save-2"]


def test_it_can_be_ended_and_go_on_again_and_again(tmp_path: Path) -> None:
    for size, stop in ((2, "6"), (3, "9"), (1, "11")):
        assert run(tmp_path, size, stop).returncode != 0
    assert run(tmp_path, 2, "-1").stdout == UNDISTURBED


def test_a_run_without_a_restart_saves_twice_and_prints_its_result(tmp_path: Path) -> None:
    done = run(tmp_path, 2, "-1")
    assert done.stdout == UNDISTURBED, done.stderr
    assert "[(0, False), (0, False)] True" in done.stderr  # two checkpoints, no resize


def test_a_value_that_cannot_be_saved_is_reported_once_and_the_program_continues(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, 2, "-1", "unlucky")
    assert done.stdout == UNDISTURBED
    assert done.stderr.count("no checkpoint was taken: StateError: the value of 'thing'") == 1
    assert "RuntimeError: no such luck" in done.stderr
    assert os.listdir(tmp_path / "save") == []


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a program that was ended on two processes."""
    folder = tmp_path_factory.mktemp("ended")
    assert run(folder, 2, "10").returncode != 0
    return folder / "save"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("(23, 4), halo=1", "(23, 4), halo=2", "registration 1: the checkpoint has"),
        ("12, every=5", "0, every=5", ""),
        ("    rows =", "    if job.joining: return\n    rows =", "main() ended before it came"),
        ("    rows =", "    job.once(int)\n    rows =", "had not come to this call of job.once"),
    ],
)
def test_a_checkpoint_of_another_program_is_refused(
    tmp_path: Path, saved: Path, old: str, new: str, text: str
) -> None:
    shutil.copytree(saved, tmp_path / "save")
    assert old in PROGRAM
    again = run(tmp_path, 2, "-1", text=PROGRAM.replace(old, new))
    if not text:  # a loop that has become shorter is over
        assert again.returncode == 0
        return
    assert again.returncode != 0
    assert text in again.stderr
    assert "To begin from the start, remove that folder" in again.stderr


def test_damage_ends_the_start_with_a_named_error(tmp_path: Path, saved: Path) -> None:
    shutil.copytree(saved, tmp_path / "save")
    data = next((tmp_path / "save" / "save-2").glob("rank1-0*"))
    data.write_bytes(data.read_bytes()[:-8])
    again = run(tmp_path, 2, "-1")
    assert again.returncode != 0
    assert "CheckpointError" in again.stderr
    assert "is cut off" in again.stderr

"""The malleable examples: alone, under mpiexec, while they are resized and killed, one result."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clusterkit.applications import NAMES, checksum, paced, plain
from pliant.client.demo.checks import segments_of
from standin import Application
from testkit import MPIEXEC, ROOT, mpiexec, run_python, wait_until

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]


@pytest.fixture
def applications() -> Iterator[list[Application]]:
    started: list[Application] = []
    yield started
    for app in started:
        app.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_result_does_not_depend_on_the_number_of_processes(name: str, tmp_path: Path) -> None:
    argv = plain(name, tmp_path)
    alone = run_python(*argv).stdout
    for size in (2, 3):
        assert mpiexec(size, argv) == alone, f"on {size} processes"


def test_the_result_does_not_depend_on_resizes(
    tmp_path: Path, applications: list[Application]
) -> None:
    alone = run_python(*plain("heat", tmp_path, 3))
    hurry = tmp_path / "hurry"
    app = Application(tmp_path, paced("heat", tmp_path, hurry, 3), 2)
    applications.append(app)
    assert app.grow(2).committed
    assert app.shrink([0]).committed
    assert app.grow(1).committed
    hurry.touch()
    assert set(app.wait()) == {0}, app.text()
    assert checksum(app.text()) == checksum(alone.stdout)
    assert "4 -> 3 processes" in app.text()


@pytest.mark.parametrize("name", NAMES)
def test_who_is_killed_goes_on_at_another_size(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run_python(*plain(name, tmp_path, 3)).stdout
    saved = tmp_path / "save"
    monkeypatch.setenv("PLIANT_CHECKPOINT", str(saved))
    argv = [MPIEXEC, "-n", "2", sys.executable, *paced(name, tmp_path, tmp_path / "hurry", 3)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:
        wait_until((saved / "manifest.json").exists, timeout=60, what="a checkpoint")
        ranks = psutil.Process(first.pid).children(recursive=True)
        segments = segments_of(rank.pid for rank in ranks)
        victim = [rank for rank in ranks if "paced.py" in " ".join(rank.cmdline())][-1]
        victim.send_signal(signal.SIGKILL)
        out, _ = first.communicate(timeout=60)
    for segment in segments:  # which nobody removes who was killed
        (Path("/dev/shm") / segment).unlink(missing_ok=True)
    assert first.returncode != 0
    assert b"checksum" not in out
    (tmp_path / "hurry").touch()
    again = mpiexec(3, paced(name, tmp_path, tmp_path / "hurry", 3))
    assert "2 -> 3 processes" in again, "it began anew"
    assert checksum(again) == checksum(alone)


def test_the_shipped_input_is_the_default() -> None:
    assert checksum(run_python("-m", "pliant.examples.master_worker").stdout)
    text = run_python(str(ROOT / "examples" / "heat.py"), timeout=100).stdout
    assert "1000 iterations" in text

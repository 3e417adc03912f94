"""One of everything, with real ranks that join and leave; every iteration verifies all."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from standin import Application

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

Start = Callable[..., Application]


def finish(app: Application, stop: Path) -> None:
    stop.touch()
    codes = app.wait()
    assert set(codes) == {0}, (codes, app.text())
    assert f"size {len(app.processors)} " in app.text()
    assert app.text().count("verified") == 1


def test_sizes_come_and_go(start: Start, tmp_path: Path) -> None:
    app = start("catalogue", 2, str(tmp_path / "stop"))
    assert app.grow(3).committed
    shrunk = app.shrink([1, 4])
    assert shrunk.committed
    assert shrunk.bytes_moved > 0
    assert app.grow(1).committed
    assert app.shrink([0, 2]).committed, "the first one, too"
    assert app.grow(2).committed
    finish(app, tmp_path / "stop")


def test_from_one_process_and_back(start: Start, tmp_path: Path) -> None:
    app = start("catalogue", 1, str(tmp_path / "stop"))
    assert app.grow(2).committed
    assert app.shrink([1, 2]).committed
    finish(app, tmp_path / "stop")


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 5)])
def test_it_goes_on_from_a_checkpoint_at_another_size(
    tmp_path: Path, before: int, after: int
) -> None:
    program = Path(__file__).parent / "apps" / "catalogue.py"
    mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
    environment = {**os.environ, "PLIANT_CHECKPOINT": str(tmp_path / "save")}
    stop = tmp_path / "stop"

    def run(size: int, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(mpiexec), "-n", str(size), sys.executable, str(program), str(stop), *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=90, env=environment
        )

    assert run(before, "10").returncode != 0
    stop.touch()
    again = run(after)
    assert again.returncode == 0, again.stderr
    assert f"size {after} iteration 8 verified" in again.stdout

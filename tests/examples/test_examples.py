"""The malleable examples: alone, under mpiexec and while they are resized, one result."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from standin import Application
from testkit import ROOT, run_python

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

NAMES = ["heat", "master_worker"]
SMALL = {
    "heat": {"rows": 64, "columns": 32, "iterations": 400, "every": 10},
    "master_worker": {"panels": 100},
}
#: Slow enough for a few resizes on any machine; the pauses end when they are done.
SLOW: dict[str, dict[str, object]] = {
    "heat": {"pause_s": 0.1},
    "master_worker": {"pause_s": 0.1, "batch": 4, "frequencies": list(range(50))},
}
PACED = ROOT / "tests" / "examples" / "paced.py"


def settings(name: str, folder: Path, **changes: object) -> str:
    values = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    path = folder / f"{name}-{changes.get('pause_s')}.yaml"
    path.write_text(yaml.safe_dump({**values, **SMALL[name], **changes}))
    return str(path)


def checksum(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("checksum ")]
    return line


@pytest.fixture
def applications() -> Iterator[list[Application]]:
    started: list[Application] = []
    yield started
    for app in started:
        app.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_result_does_not_depend_on_the_number_of_processes(name: str, tmp_path: Path) -> None:
    path = settings(name, tmp_path)
    alone = run_python("-m", f"pliant.examples.{name}", path)
    mpiexec = Path(sysconfig.get_path("scripts")) / "mpiexec"
    three = subprocess.run(
        [mpiexec, "-n", "3", sys.executable, ROOT / "examples" / f"{name}.py", path],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert checksum(three.stdout) == checksum(alone.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_the_result_does_not_depend_on_resizes(
    name: str, tmp_path: Path, applications: list[Application]
) -> None:
    fast = settings(name, tmp_path, **(SLOW[name] | {"pause_s": 0.0}))
    alone = run_python("-m", f"pliant.examples.{name}", fast)
    hurry = tmp_path / "hurry"
    argv = [str(PACED), name, str(hurry), settings(name, tmp_path, **SLOW[name])]
    app = Application(tmp_path, argv, 2)
    applications.append(app)
    assert app.grow(2).committed
    assert app.shrink([0]).committed
    assert app.grow(1).committed
    hurry.touch()
    assert set(app.wait()) == {0}, app.text()
    assert checksum(app.text()) == checksum(alone.stdout)
    assert "4 -> 3 processes" in app.text()


def test_the_shipped_input_is_the_default() -> None:
    assert checksum(run_python("-m", "pliant.examples.master_worker").stdout)
    text = run_python(str(ROOT / "examples" / "heat.py"), timeout=100).stdout
    assert "1000 iterations" in text

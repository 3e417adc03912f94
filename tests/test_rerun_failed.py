"""Tests that failed run again alone, and only a defect fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.repository import ROOT


def run(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run the runner on one test file that counts in a file how often each test has run."""
    header = (
        "from pathlib import Path\n"
        "def runs(name):\n"
        "    path = Path(name)\n"
        "    count = int(path.read_text()) + 1 if path.exists() else 1\n"
        "    path.write_text(str(count))\n"
        "    return count\n"
    )
    (folder / "test_it.py").write_text(header + body)
    # Options of the outer run do not concern the inner one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "rerun_failed", "-q", f"--rootdir={folder}", "test_it.py"],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT / "tests" / "support")},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


GOOD = "def test_good():\n    assert runs('good') == 1\n"

LEAKY = """
import pytest
@pytest.fixture
def leaky():
    yield
    assert runs('leaky') > 1, 'left behind'
def test_leaky(leaky):
    pass
"""


def test_what_passes_alone_is_listed_as_flaky(tmp_path: Path) -> None:
    body = "def test_{0}():\n    assert runs('{0}') >= {1}, 'too slow'\n"
    done = run(tmp_path, body.format("once", 2) + body.format("twice", 3) + LEAKY + GOOD)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = done.stdout.partition("flaky: 3 ")[2]
    for text in ("test_once", "test_twice", "too slow", "test_leaky", "left behind"):
        assert text in listed
    assert (tmp_path / "good").read_text() == "1", "what passed does not run again"


def test_a_defect_fails_the_run_after_three_times(tmp_path: Path) -> None:
    done = run(tmp_path, GOOD + "def test_bad():\n    assert runs('bad') < 0\n")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "flaky: none" in done.stdout
    assert (tmp_path / "bad").read_text() == "3"


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    body = (
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(11))\n"
        "def test_bad(n):\n    assert runs(f'bad{n}') < 0\n"
    )
    done = run(tmp_path, body)
    assert done.returncode == 1
    assert (tmp_path / "bad0").read_text() == "1"


def test_a_run_without_failures_ends_as_pytest_does(tmp_path: Path) -> None:
    done = run(tmp_path, "")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "flaky" not in done.stdout

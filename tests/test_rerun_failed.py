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
        [sys.executable, "-m", "rerun_failed", "-q", "-n2", f"--rootdir={folder}", "test_it.py"],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT / "tests" / "support")},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_nothing_is_repeated_when_all_pass(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_good():\n    assert runs('good') == 1\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flaky" not in done.stdout
    assert (tmp_path / "good").read_text() == "1"


@pytest.mark.parametrize("passes_at", [2, 3])
def test_a_test_that_passes_alone_is_listed_as_flaky(tmp_path: Path, passes_at: int) -> None:
    body = (
        f"def test_flaky():\n    assert runs('flaky') >= {passes_at}, 'too slow'\n"
        "def test_good():\n    assert runs('good') == 1\n"
    )
    done = run(tmp_path, body)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = done.stdout.partition("flaky: 1 ")[2]
    assert "test_flaky" in listed
    assert "too slow" in listed
    assert (tmp_path / "good").read_text() == "1", "what passed does not run again"


def test_a_defect_fails_the_run_after_three_times(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_bad():\n    assert runs('bad') < 0\n")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "flaky: none" in done.stdout
    assert (tmp_path / "bad").read_text() == "3"


def test_a_failing_fixture_counts_as_a_failure(tmp_path: Path) -> None:
    body = (
        "import pytest\n"
        "@pytest.fixture\n"
        "def leaky():\n"
        "    yield\n"
        "    assert runs('leaky') > 1, 'left behind'\n"
        "def test_uses_it(leaky):\n    pass\n"
    )
    done = run(tmp_path, body)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left behind" in done.stdout.partition("flaky: 1 ")[2]


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    body = (
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(11))\n"
        "def test_bad(n):\n    assert runs(f'bad{n}') < 0\n"
    )
    done = run(tmp_path, body)
    assert done.returncode == 1
    assert (tmp_path / "bad0").read_text() == "1"


def test_wrong_options_are_reported_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "rerun_failed", "--no-such-option"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests" / "support")},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 4

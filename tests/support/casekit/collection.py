"""Find the marked tests by a collection of pytest: ``python -m casekit.collection``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import astuple
from functools import cache

import pytest

from casekit import Mark, marks
from testkit.repository import ROOT


@cache
def collected() -> tuple[Mark, ...]:
    """Return the marks of all tests, by case and then in the order of the tests.

    Another process collects, because a test may call this while only some files are collected.
    """
    # Options of this run do not concern the other one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "casekit.collection"],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT / "tests" / "support")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the tests of the cases cannot be collected:\n{done.stdout[-5000:]}")
    rows = json.loads(done.stdout.splitlines()[-1])
    return tuple(Mark(number, test) for number, test in rows)


class _Recorder:
    def __init__(self) -> None:
        self.found: dict[Mark, None] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.found = {mark: None for item in session.items for mark in marks(item)}


def files() -> list[str]:
    """Return the files with marked tests, so that no others need to be imported."""
    found = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(path.relative_to(ROOT)) for path in found if "mark.case(" in path.read_text())


def main() -> int:
    """Print the marks as JSON on the last line."""
    recorder = _Recorder()
    status = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *files()], [recorder])
    rows = [astuple(mark) for mark in sorted(recorder.found, key=lambda mark: mark.number)]
    print(json.dumps(rows))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())

"""Run pytest; run each test that failed again, alone: ``python -m rerun_failed PYTEST_ARGS...``.

Some tests start dozens of real processes, and a machine that is busy with other work can break
their assumptions about time. A defect fails every time. So the tests that failed in the first
run, in which several workers share the processors, run up to twice more with nothing next to them.
A test that passes then is *flaky*: it is listed at the end together with its first failure, to be
repaired, and does not fail the run. A test that fails three times does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

#: More failures than this are no accident of timing, and repeating them would only take time.
MAX_RERUN = 10
#: How often a test that failed is run again.
RERUNS = 2

#: Separate from the cache of other runs, whose failures are none of this run.
_CACHE = ("-o", "cache_dir=.pytest_cache/rerun_failed")


def main(args: Sequence[str]) -> int:
    """Run pytest with `args` and return its exit status, or that of the second run."""
    with tempfile.TemporaryDirectory(prefix="pliant-junit-") as folder:
        report = Path(folder) / "first.xml"
        status = _pytest(*args, "--cache-clear", f"--junitxml={report}")
        if status != pytest.ExitCode.TESTS_FAILED:
            return status
        failures = first_failures(report.read_text(encoding="utf-8"))
        if len(failures) > MAX_RERUN:
            print(f"{len(failures)} tests failed; more than {MAX_RERUN} are not run again")
            return status
        print(f"\nrunning {len(failures)} failed tests again, alone", flush=True)
        again = Path(folder) / "again.xml"
        # The first of the reruns is this run itself.
        status = _pytest(
            *args, "-n0", "--last-failed", f"--reruns={RERUNS - 1}", f"--junitxml={again}"
        )
        still = first_failures(again.read_text(encoding="utf-8")) if again.exists() else failures
    flaky = {name: text for name, text in failures.items() if name not in still}
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        print(describe(flaky))
    return status


def first_failures(junit_xml: str) -> dict[str, str]:
    """Return the text of the failure of each failed test in a JUnit report, by test name."""
    failures: dict[str, str] = {}
    for case in ElementTree.fromstring(junit_xml).iter("testcase"):
        for outcome in (*case.findall("failure"), *case.findall("error")):
            name = f"{case.get('classname')}::{case.get('name')}"
            failures.setdefault(name, outcome.text or outcome.get("message") or "")
    return failures


def describe(flaky: Mapping[str, str]) -> str:
    """Return the list of flaky tests with their first failures, as it is printed at the end."""
    if not flaky:
        return "flaky: none"
    lines = [f"flaky: {len(flaky)} failed in the first run and passed alone; to be repaired"]
    for name, text in flaky.items():
        lines.append(f"  {name}")
        lines.extend(f"    {line}" for line in text.strip().splitlines()[-15:])
    return "\n".join(lines)


def _pytest(*args: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *_CACHE, *args], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Keep the results of the last run of each test of a case: taken from pytest's JUnit report.

A result is kept, with its day, until the test runs again or loses its mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from testkit.repository import ROOT

FILE = ROOT / "tests" / "reliability" / "results.json"


@dataclass(frozen=True)
class Result:
    """The result of one marked test with all its parameters, or the sum of several."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: Includes set-up and tear-down.
    seconds: float = 0.0
    #: The oldest of the days on which the tests ran, as in 2026-01-31.
    day: str = ""

    def __add__(self, other: Result) -> Result:
        return Result(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            round(self.seconds + other.seconds, 1),
            min(day for day in (self.day, other.day) if day) if self.day or other.day else "",
        )

    def __str__(self) -> str:
        parts = [f"{self.failed} FAILED"] if self.failed else []
        parts += [f"{self.passed} passed"] if self.passed else []
        parts += [f"{self.skipped} skipped"] if self.skipped else []
        return f"{', '.join(parts)} in {self.seconds:.1f} s, {self.day}"


#: By `Mark.test`.
Results = dict[str, Result]


def read(path: Path = FILE) -> Results:
    """Return the results that are kept."""
    rows = json.loads(path.read_text()) if path.exists() else {}
    return {test: Result(**row) for test, row in rows.items()}


def write(results: Results, tests: Iterable[str], path: Path = FILE) -> None:
    """Keep the results of these tests, in this order, and drop all others."""
    lines = [
        f"{json.dumps(test)}: {json.dumps(asdict(results[test]))}"
        for test in dict.fromkeys(tests)
        if test in results
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def summary(tests: Iterable[str], results: Mapping[str, Result]) -> str:
    """Return one phrase for the results of the tests of a case."""
    tests = list(tests)
    ran = [results[test] for test in tests if test in results]
    missing = len(tests) - len(ran)
    parts = [str(sum(ran, Result()))] if ran else []
    return "; ".join([*parts, *([f"{missing} not run yet"] if missing or not ran else [])])


def of_run(report: Path) -> Results:
    """Return the results of marked tests in a JUnit report."""
    results: Results = {}
    # The report was written by our own run of pytest.
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        day = suite.get("timestamp", "")[: len("2026-01-31")]
        for testcase in suite.iter("testcase"):
            for test in _marked(testcase):
                results[test] = results.get(test, Result()) + _result(testcase, day)
    return results


def _marked(testcase: ElementTree.Element) -> list[str]:
    return [
        found.get("value", "") for found in testcase.iter("property") if found.get("name") == "case"
    ]


def _result(testcase: ElementTree.Element, day: str) -> Result:
    failed = testcase.find("failure") is not None or testcase.find("error") is not None
    skipped = not failed and testcase.find("skipped") is not None
    seconds = round(float(testcase.get("time", "0")), 1)
    return Result(int(not failed and not skipped), int(failed), int(skipped), seconds, day)

"""What came of the tests of the cases when they ran last: taken from pytest's own record of a run.

One entry for each test that cases.yaml names, with the day of its last run. Entries are kept until
the test runs again, or is not named any more; what has no entry has not been run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from casekit import CASES, Case
from testkit.repository import ROOT

FILE = ROOT / "tests" / "reliability" / "results.json"


@dataclass(frozen=True)
class Result:
    """What came of one test that is named, or of several together."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: Of all of it, with what sets it up and takes it down.
    seconds: float = 0.0
    #: Of the run: of the oldest one, where there are several; as in 2026-01-31.
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
        said = [f"{self.failed} FAILED"] if self.failed else []
        said += [f"{self.passed} passed"] if self.passed else []
        said += [f"{self.skipped} skipped"] if self.skipped else []
        return f"{', '.join(said)} in {self.seconds:.1f} s, {self.day}"


Results = dict[str, Result]


def read(path: Path = FILE) -> Results:
    """Read what is kept: test as named -> result."""
    rows = json.loads(path.read_text()) if path.exists() else {}
    return {test: Result(**row) for test, row in rows.items()}


def write(results: Results, path: Path = FILE) -> None:
    """Keep results, in the order of the cases; those of tests that no case names are dropped."""
    lines = [
        f"{json.dumps(test)}: {json.dumps(asdict(results[test]))}"
        for test in named()
        if test in results
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def named() -> list[str]:
    """Every test that a case names, each once."""
    return list(dict.fromkeys(test for case in CASES for test in case.tests))


def of(case: Case, results: Mapping[str, Result]) -> str:
    """Say what came of a case."""
    ran = [results[test] for test in case.tests if test in results]
    missing = len(case.tests) - len(ran)
    said = [str(sum(ran, Result()))] if ran else []
    return "; ".join([*said, *([f"{missing} not run yet"] if missing or not ran else [])])


def of_run(report: Path) -> Results:
    """Take from a JUnit file of pytest what concerns the cases."""
    # Our own file, made by the pytest that has just run.
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    ran = [
        (_name(each), _result(each, suite.get("timestamp", "")[: len("2026-01-31")]))
        for suite in suites
        for each in suite.iter("testcase")
    ]
    found = {test: [result for name, result in ran if matches(test, name)] for test in named()}
    return {test: sum(results, Result()) for test, results in found.items() if results}


def matches(test: str, name: str) -> bool:
    """Whether what ran - ``tests.a.test_b.test_c[d]`` - belongs to a test as a case names it."""
    file, _, rest = test.partition("::")
    wanted, _, part = rest.partition("[")
    ran, _, parameters = name.partition("[")
    whole = f"{file.removesuffix('.py').replace('/', '.')}.{wanted.replace('::', '.')}"
    return (ran == whole or ran.startswith(f"{whole}.")) and part.rstrip("]") in parameters


def _name(testcase: ElementTree.Element) -> str:
    return f"{testcase.get('classname')}.{testcase.get('name')}"


def _result(testcase: ElementTree.Element, day: str) -> Result:
    failed = testcase.find("failure") is not None or testcase.find("error") is not None
    skipped = not failed and testcase.find("skipped") is not None
    seconds = round(float(testcase.get("time", "0")), 1)
    return Result(int(not failed and not skipped), int(failed), int(skipped), seconds, day)

"""Every case of docs/reliability.md has a marked test, and its table is up to date."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from casekit import CASES
from casekit.collection import collected
from casekit.results import Result, of_run, read, summary
from casekit.table import PAGE, page
from testkit import ROOT

#: One worker collects the tests, once.
pytestmark = pytest.mark.xdist_group("cases")

NUMBERS = [case.number for case in CASES]


def test_cases_are_numbered_in_order() -> None:
    assert sorted(set(NUMBERS)) == NUMBERS


def test_every_case_has_a_test() -> None:
    assert set(NUMBERS) - {mark.number for mark in collected()} == set()


def test_every_mark_names_a_case() -> None:
    assert [mark for mark in collected() if mark.number not in NUMBERS] == []


def test_the_page_is_up_to_date() -> None:
    """Otherwise: PYTHONPATH=tests/support python -m casekit.table."""
    assert PAGE.read_text() == page(PAGE.read_text(), collected(), read())


def test_results_belong_to_marked_tests() -> None:
    assert set(read()) <= {mark.test for mark in collected()}


def test_no_kept_result_is_a_failure() -> None:
    assert {test: str(result) for test, result in read().items() if result.failed} == {}


MARKED = """
import pytest

@pytest.mark.case(1, 2)
def test_good():
    pass

@pytest.mark.case(2)
@pytest.mark.case(3, param="b")
@pytest.mark.parametrize("value", ["a", "b1", "b2"])
def test_parameters(value):
    assert value != "b1"
    if value == "b2":
        pytest.skip()

def test_unmarked():
    assert False
"""


@pytest.fixture
def report(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return the report of a run of MARKED; the fixture's parameter is the value of --cases."""
    (tmp_path / "test_it.py").write_text(MARKED)
    report = tmp_path / "report.xml"
    # Options of the outer run do not concern the inner one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    options = ["-p", "casekit.plugin", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    options += [f"--cases={request.param}", f"--junitxml={report}"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT / "tests" / "support")},
        capture_output=True,
        check=False,
        timeout=100,
    )
    return report


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("1", {"test_good": (1, 0, 0)}),
        ("2 1", {"test_good": (1, 0, 0), "test_parameters": (1, 1, 1)}),
        ("3", {"test_parameters[b]": (0, 1, 1)}),
        (
            "",
            {
                "test_good": (1, 0, 0),
                "test_parameters": (1, 1, 1),
                "test_parameters[b]": (0, 1, 1),
            },
        ),
    ],
    indirect=["report"],
)
def test_a_run_of_some_cases_reports_their_marked_tests(
    report: Path, expected: dict[str, tuple[int, int, int]]
) -> None:
    results = of_run(report)
    counts = {test: (found.passed, found.failed, found.skipped) for test, found in results.items()}
    assert counts == {f"test_it.py::{name}": count for name, count in expected.items()}


def test_a_summary_counts_what_has_run_and_what_has_not() -> None:
    results = {"a": Result(1, 0, 1, 1.26, "2026-01-31"), "b": Result(0, 1, 0, 2.1, "2026-01-30")}
    assert summary(["a", "b", "c"], results) == (
        "1 FAILED, 1 passed, 1 skipped in 3.4 s, 2026-01-30; 1 not run yet"
    )

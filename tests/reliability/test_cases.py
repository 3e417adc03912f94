"""The list of what may go wrong is complete, and the tests that it names are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from casekit import CASES, Case
from casekit.results import Result, matches, named, of, of_run, read
from casekit.table import PAGE, page
from testkit import ROOT

#: Those of certificates and of several users come with these.
NOT_YET = {57, 58, 59, 60}


@cache
def names(path: Path) -> set[str]:
    """What pytest may be asked for in a file: functions, classes, and functions of classes."""
    found = set()
    for node in ast.parse(path.read_bytes()).body:
        match node:
            case ast.FunctionDef():
                found.add(node.name)
            case ast.ClassDef():
                own = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
                found |= {node.name, *(f"{node.name}::{name}" for name in own)}
            case ast.Assign(targets=[ast.Name(name)]):
                found.add(name)
    return found


NAMED = [(case, test) for case in CASES for test in case.tests]


def test_every_case_is_listed_once() -> None:
    assert [case.number for case in CASES] == sorted(set(range(1, 67)) - NOT_YET)


def test_what_is_not_tested_is_said() -> None:
    assert [case.number for case in CASES if not (case.tests or case.missing)] == []


@pytest.mark.parametrize(("case", "test"), NAMED, ids=str)
def test_the_tests_are_there(case: Case, test: str) -> None:
    file, _, rest = test.partition("::")
    name = re.sub(r"\[.*", "", rest)
    assert name in names(ROOT / file), f"case {case.number}"


def test_the_page_is_up_to_date() -> None:
    """Otherwise: PYTHONPATH=tests/support python -m casekit.table."""
    assert PAGE.read_text() == page(PAGE.read_text(), read())


def test_results_are_of_tests_that_are_named() -> None:
    assert set(read()) <= set(named())


def test_no_result_that_is_kept_is_bad() -> None:
    assert {test: str(result) for test, result in read().items() if result.failed} == {}


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("tests/a/test_b.py::test_c", "tests.a.test_b.test_c"),
        ("tests/a/test_b.py::test_c", "tests.a.test_b.test_c[any]"),
        ("tests/a/test_b.py::test_c[drop]", "tests.a.test_b.test_c[server.go-drop]"),
        ("tests/a/test_b.py::TestC", "tests.a.test_b.TestC.runTest"),
        ("tests/a/test_b.py::TestC::test_d", "tests.a.test_b.TestC.test_d"),
    ],
)
def test_what_ran_belongs_to_what_is_named(test: str, name: str) -> None:
    assert matches(test, name)


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("tests/a/test_b.py::test_c", "tests.a.test_b.test_cc"),
        ("tests/a/test_b.py::test_c", "tests.b.test_b.test_c"),
        ("tests/a/test_b.py::test_c[drop]", "tests.a.test_b.test_c[double]"),
        ("tests/a/test_b.py::test_c[drop]", "tests.a.test_b.test_c"),
    ],
)
def test_what_ran_belongs_to_nobody_else(test: str, name: str) -> None:
    assert not matches(test, name)


RUN = """<testsuites><testsuite name="pytest" timestamp="2026-01-31T01:02:03.000004+00:00">
<testcase classname="{place}" name="{name}[a]" time="1.26" />
<testcase classname="{place}" name="{name}[b]" time="2.0"><failure message="no" /></testcase>
<testcase classname="{place}" name="{name}[c]" time="0.1"><skipped message="no" /></testcase>
</testsuite></testsuites>"""


def test_results_come_from_a_run(tmp_path: Path) -> None:
    test = next(test for test in named() if "[" not in test)
    file, _, name = test.partition("::")
    place = file.removesuffix(".py").replace("/", ".")
    report = tmp_path / "run.xml"
    report.write_text(RUN.format(place=place, name=name))
    results = of_run(report)
    assert results == {test: Result(1, 1, 1, 3.4, "2026-01-31")}
    case = Case(1, "", "", "M", (test, "tests/other.py::test"), "")
    assert of(case, results) == (
        "1 FAILED, 1 passed, 1 skipped in 3.4 s, 2026-01-31; 1 not run yet"
    )

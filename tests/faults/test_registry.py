"""The list of failpoints and the code tell the same."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from faultkit import all_cases, ci_cases, ci_run_cases, run_cases
from faultkit.cases import CI
from pliant.faults.registry import POINTS
from testkit import PARTS, ROOT, part_files

NAMES = [point.name for point in POINTS]
#: What stands in the code at a failpoint.
CALLS = ("failpoint", "message")
#: Tables of failpoints by the kind of a message.
TABLES = {"_ARRIVED", "_FAILPOINTS"}
#: The parts whose code runs in each kind of process.
HOME = {
    "server": "server",
    "controller": "nodectl",
    "launcher": "nodectl",
    "shim": "nodectl",
    "appkit": "appkit",
}


def sources() -> list[Path]:
    return [path for part in PARTS if part != "faults" for path in part_files(part)]


def texts(path: Path) -> list[str]:
    return constants(ast.parse(path.read_bytes()))


def constants(tree: ast.AST) -> list[str]:
    found = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [text for text in found if isinstance(text, str)]


@pytest.mark.case(10)
def test_every_failpoint_has_its_cases() -> None:
    assert {case.point for case in [*all_cases(), *run_cases()]} == set(NAMES)
    assert {case.name for case in ci_cases()} == CI
    assert {case.point for case in ci_run_cases()} == {case.point for case in run_cases()}


def test_names_are_told_apart() -> None:
    assert [name for name, number in Counter(NAMES).items() if number > 1] == []


def test_every_failpoint_of_the_list_is_in_the_code_once() -> None:
    found = Counter(text for path in sources() for text in texts(path) if text in NAMES)
    assert found == Counter(NAMES)


def test_every_failpoint_is_in_the_code_of_its_process() -> None:
    for path in sources():
        part = path.relative_to(ROOT).parts[0]
        for name in set(texts(path)) & set(NAMES):
            assert HOME[name.partition(".")[0]] == part, f"{name} in {path}"


def test_failpoints_that_can_double_messages_are_called_by_message() -> None:
    """``message`` stands at them; those that are chosen by kind stand in a table beside it."""
    at: dict[str, set[str]] = {call: set() for call in CALLS}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in at:
                at[ast.unparse(node.func)] |= set(constants(node.args[0]))
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in TABLES:
                at["message"] |= set(constants(node.value)) & set(NAMES)
    doubled = {point.name for point in POINTS if "double" in point.extra_actions}
    assert at["message"] == doubled
    assert not at["failpoint"] & doubled


def test_every_failpoint_in_the_code_is_in_the_list() -> None:
    unknown = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
                name = node.args[0]
                if isinstance(name, ast.Constant) and name.value not in NAMES:
                    unknown.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name.value!r}")
    assert unknown == []

"""The list of failpoints and the code tell the same."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from faultkit import all_cases, ci_cases, ci_run_cases, run_cases
from faultkit.cases import CI
from pliant.faults.registry import POINTS
from testkit import PARTS, ROOT, part_files

#: One worker reads the sources.
pytestmark = pytest.mark.xdist_group("sources")

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


@dataclass(frozen=True)
class Source:
    """What a source file says about failpoints."""

    path: Path
    #: Names of failpoints among its texts.
    names: list[str]
    #: For each call of `CALLS`: the function, the line, and the first argument.
    calls: list[tuple[str, int, ast.expr]]
    #: Texts in `TABLES`.
    in_tables: list[str]


@cache
def sources() -> list[Source]:
    return [read(path) for part in PARTS if part != "faults" for path in part_files(part)]


def read(path: Path) -> Source:
    source = Source(path, [], [], [])
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Constant(value=str(text)) if text in NAMES:
                source.names.append(text)
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in CALLS:
                source.calls.append((name, node.lineno, first))
            case ast.Assign(targets=[ast.Name(id=name)]) if name in TABLES:
                source.in_tables.extend(constants(node.value))
    return source


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
    assert Counter(name for source in sources() for name in source.names) == Counter(NAMES)


def test_every_failpoint_is_in_the_code_of_its_process() -> None:
    for source in sources():
        part = source.path.relative_to(ROOT).parts[0]
        for name in source.names:
            assert HOME[name.partition(".")[0]] == part, f"{name} in {source.path}"


def test_failpoints_that_can_double_messages_are_called_by_message() -> None:
    """``message`` stands at them; those that are chosen by kind stand in a table beside it."""
    at: dict[str, set[str]] = {call: set() for call in CALLS}
    for source in sources():
        for call, _, argument in source.calls:
            at[call] |= set(constants(argument))
        at["message"] |= set(source.in_tables) & set(NAMES)
    doubled = {point.name for point in POINTS if "double" in point.extra_actions}
    assert at["message"] == doubled
    assert not at["failpoint"] & doubled


def test_every_failpoint_in_the_code_is_in_the_list() -> None:
    unknown = []
    for source in sources():
        for _, line, argument in source.calls:
            if isinstance(argument, ast.Constant) and argument.value not in NAMES:
                unknown.append(f"{source.path.relative_to(ROOT)}:{line}: {argument.value!r}")
    assert unknown == []

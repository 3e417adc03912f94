"""The page about the applications: what it takes out of each leaves an ordinary MPI program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusterkit.applications import NAMES, checksum, problem
from testkit import ROOT, mpiexec, run_python

PAGE = (ROOT / "docs" / "applications.md").read_text()
HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")


def difference(name: str) -> list[str]:
    """Return the lines of the difference that the page shows for a program."""
    blocks = re.findall(r"^```diff\n(.*?)^```$", PAGE, re.M | re.S)
    (found,) = [block for block in blocks if f"\n+++ examples/{name}.py\n" in block]
    lines: list[str] = found.splitlines()
    return lines[2:]


def added(name: str) -> list[str]:
    return [line for line in difference(name) if line.startswith("+") and line != "+"]


def plain(name: str) -> str:
    """Return the program without what the difference adds to the plain one."""
    rest = (ROOT / "examples" / f"{name}.py").read_text().splitlines()
    made: list[str] = []
    taken = 0
    for line in difference(name):
        if head := HUNK.match(line):
            made += rest[taken : int(head[1]) - 1]
            taken = int(head[1]) - 1
            continue
        sign, text = line[:1], line[1:]
        if sign in ("+", " ", ""):
            assert rest[taken] == text, f"line {taken + 1} of {name}.py is not as the page has it"
            taken += 1
        if sign != "+":
            made.append(text)
    return "\n".join([*made, *rest[taken:], ""])


def test_every_program_has_its_difference_and_its_number_of_lines() -> None:
    table = dict(re.findall(r"^\| \[(\w+)\]\(.*\| (\d+) \|$", PAGE, re.M))
    assert table == {name: str(len(added(name))) for name in NAMES}


def test_few_lines_make_heat_malleable() -> None:
    assert len(added("heat")) <= 8


@pytest.mark.mpi
@pytest.mark.parametrize("name", NAMES)
def test_without_them_it_is_an_ordinary_program_with_the_same_result(
    name: str, tmp_path: Path
) -> None:
    code = plain(name)
    assert not re.search(r"\bjob\b|appkit|malleable", code.split('"""', 2)[2])
    path = tmp_path / f"{name}.py"
    path.write_text(code)
    argv = problem(name, tmp_path)
    malleable = run_python("-m", f"pliant.examples.{name}", *argv).stdout
    assert checksum(mpiexec(2, [str(path), *argv])) == checksum(malleable)

"""The names that ``pliant.strategies`` offers to authors of strategies."""

import ast
import re
from pathlib import Path

import pytest

import pliant.strategies
from testkit import ROOT

PAGE = ROOT / "docs" / "writing-a-strategy.md"
EXAMPLE = ROOT / "examples" / "strategies" / "user_shares"
NAMES = pliant.strategies.__all__


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(pliant.strategies, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(pliant.strategies, "nonsense")  # noqa: B009 - mypy knows that it is missing


def test_the_page_lists_exactly_the_public_names() -> None:
    section = PAGE.read_text().split("\n## All names\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert listed == set(NAMES)


def _imports(program: str) -> set[str]:
    """Return the modules of Pliant that a program imports from."""
    found = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module.startswith("pliant")}


@pytest.mark.parametrize("path", sorted(EXAMPLE.glob("*.py")), ids=lambda path: path.name)
def test_the_example_imports_only_public_packages(path: Path) -> None:
    assert _imports(path.read_text()) <= {"pliant.strategies", "pliant.simulator"}


def test_the_programs_of_the_page_import_only_the_package() -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert [_imports(program) for program in programs] == [{"pliant.strategies"}]


def test_the_old_name_is_kept() -> None:
    assert pliant.strategies.served is pliant.strategies.with_size_requests

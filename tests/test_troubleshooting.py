"""The pages about errors: every code has a row, and every row says what helps."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.core.support.base_error import PliantError
from testkit import PARTS, ROOT

CODES = ROOT / "docs" / "errors.md"
MESSAGES = ROOT / "docs" / "troubleshooting.md"

#: Importing them runs a command or needs more than an import.
NOT_IMPORTED = re.compile(r"__main__|migrations\.(env|versions)|\.examples\.|protos\.generate")


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def error_classes() -> set[type[PliantError]]:
    """Import every module of every part and return the errors that they define."""
    for part in PARTS:
        package = importlib.import_module(f"pliant.{part}")
        for module in pkgutil.walk_packages(package.__path__, f"pliant.{part}."):
            if not NOT_IMPORTED.search(module.name):
                importlib.import_module(module.name)
    return {kind for kind in subclasses(PliantError) if kind.__module__.startswith("pliant.")}


def subclasses(kind: type[PliantError]) -> Iterator[type[PliantError]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    listed = [
        (cells[0].strip("`"), cells[1].strip("`"))
        for cells in rows(CODES.read_text())
        if cells[0].startswith("`")
    ]
    assert len(listed) == len(set(listed))
    assert set(listed) == {(kind.code, kind.__name__) for kind in error_classes()}


def test_one_code_is_one_kind_of_error() -> None:
    names: dict[str, set[str]] = {}
    for kind in error_classes():
        names.setdefault(kind.code, set()).add(kind.__name__)
    assert {code: found for code, found in names.items() if len(found) > 1} == {}


def sample(kind: type[PliantError]) -> PliantError:
    """Return an error with a text for each argument that its constructor requires."""
    written = inspect.isfunction(kind.__init__)  # the constructors of built-in errors take any
    parameters = inspect.signature(kind).parameters.values() if written else ()
    required = [each for each in parameters if each.default is each.empty]
    places = [each.name for each in required if each.kind is not each.KEYWORD_ONLY]
    by_name = {each.name: each.name for each in required if each.kind is each.KEYWORD_ONLY}
    return kind(*("a text" if name == "args" else name for name in places), **by_name)


def test_every_error_can_be_copied_and_pickled() -> None:
    for kind in sorted(error_classes(), key=lambda kind: kind.__name__):
        error = sample(kind)
        error.add_note("a note")
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(again) is kind
            assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_a_code_comes_from_the_name_of_the_class() -> None:
    class NoMPIServerError(PliantError):
        pass

    class Other(PliantError, code="a-code"):
        pass

    assert (NoMPIServerError.code, Other.code) == ("no-mpi-server", "a-code")


@pytest.mark.parametrize("page", [CODES, MESSAGES], ids=lambda page: page.stem)
def test_every_row_says_what_helps(page: Path) -> None:
    found = rows(page.read_text())
    assert len(found) > 20
    assert [row for row in found if not all(row) or len(row) not in (2, 3)] == []

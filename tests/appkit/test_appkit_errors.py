"""The exceptions of programs: the tree in their module, and copies of them."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import NamedTuple

import pytest

from pliant.appkit import appkit_errors
from pliant.core.support.base_error import PliantError

#: A line of the tree: the lines that connect classes, a name, its base or its meaning.
LINE = re.compile(r"^ {4}([├└│─ ]*)(\w+)(?: \((\w+)\)(?:  .*)?|  .*|)$", re.MULTILINE)
#: Characters by which a class is indented further than its base.
INDENT = 4

CLASSES: dict[str, type[BaseException]] = {
    name: kind
    for name, kind in inspect.getmembers(appkit_errors, inspect.isclass)
    if kind.__module__ == appkit_errors.__name__ and issubclass(kind, BaseException)
}


class Entry(NamedTuple):
    name: str
    bases: list[str]


def tree() -> list[Entry]:
    """Return the classes of the tree in the module's docstring, with the bases that it names."""
    entries: list[Entry] = []
    path: list[str] = []
    for line in LINE.finditer(appkit_errors.__doc__ or ""):
        branch, name, base = line.groups()
        path = [*path[: len(branch) // INDENT], name]
        also = re.findall(r"\(also an? (\w+)\)", line[0])
        entries.append(Entry(name, [base or path[-2], *also]))
    return entries


def example(kind: type[BaseException]) -> BaseException:
    return kind(*["a text"] * (2 if kind is appkit_errors.ResizeFailed else 1))


def test_the_tree_has_each_class_once() -> None:
    assert sorted(entry.name for entry in tree()) == sorted(CLASSES)


def test_the_tree_has_the_bases_of_each_class() -> None:
    real = {name: [base.__name__ for base in kind.__bases__] for name, kind in CLASSES.items()}
    assert dict(tree()) == real


def test_all_errors_of_the_library_are_in_the_module() -> None:
    def below(kind: type[PliantError]) -> set[type[PliantError]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    found = {kind for kind in below(PliantError) if kind.__module__.startswith("pliant.appkit.")}
    assert {kind.__name__ for kind in found} == set(CLASSES) - {"JobLeave"}


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_an_error_can_be_copied_and_pickled(kind: type[BaseException]) -> None:
    error = example(kind)
    for same in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(same) is kind
        assert (str(same), same.args, vars(same)) == (str(error), error.args, vars(error))


def test_a_failed_resize_names_its_stage_and_its_reason() -> None:
    error = appkit_errors.ResizeFailed("move", "rank 5 died")
    assert (str(error), error.stage, error.reason) == ("move: rank 5 died", "move", "rank 5 died")

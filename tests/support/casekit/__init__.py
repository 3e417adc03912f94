"""The faults of docs/reliability.md (tests/reliability/cases.yaml) and the marks of their tests.

A test that causes case 18 is marked ``@pytest.mark.case(18)``. If only some parameters of a test
belong to a case, ``@pytest.mark.case(32, param="drop")`` selects those whose id contains the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from testkit.repository import ROOT

FILE = ROOT / "tests" / "reliability" / "cases.yaml"


@dataclass(frozen=True)
class Case:
    """A fault and the behaviour that is expected of Pliant."""

    number: int
    fault: str
    expected: str
    #: ``M``: a model or one module, ``P``: real processes, ``R``: needs root.
    tier: str
    #: The part of the fault that no test causes yet.
    missing: str


def _read() -> list[Case]:
    return [
        Case(row["case"], row["fault"], row["expected"], row["tier"], row.get("missing", ""))
        for row in yaml.safe_load(FILE.read_text())
    ]


CASES = _read()


@dataclass(frozen=True, order=True)
class Mark:
    """One number in a mark of a test."""

    number: int
    #: ``tests/FILE::NAME``, with ``[PARAM]`` if only some parameters belong to the case.
    test: str


def marks(item: pytest.Item) -> Iterator[Mark]:
    """Yield the marks that apply to a collected test with its parameters."""
    name, _, parameters = item.nodeid.partition("[")
    for mark in item.iter_markers("case"):
        param = mark.kwargs.get("param", "")
        if param in parameters:
            test = f"{name}[{param}]" if param else name
            yield from (Mark(number, test) for number in mark.args)

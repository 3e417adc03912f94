"""What may go wrong (tests/reliability/cases.yaml), read, and what came of its tests."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from testkit.repository import ROOT

FILE = ROOT / "tests" / "reliability" / "cases.yaml"


@dataclass(frozen=True)
class Case:
    """One of them."""

    number: int
    fault: str
    expected: str
    #: ``M``: a model or one module, ``P``: real processes, ``R``: needs root.
    tier: str
    tests: tuple[str, ...]
    missing: str

    def __str__(self) -> str:
        return f"case {self.number}"


def _read() -> list[Case]:
    return [
        Case(
            each["case"],
            each["fault"],
            each["expected"],
            each["tier"],
            tuple(each.get("tests", ())),
            each.get("missing", ""),
        )
        for each in yaml.safe_load(FILE.read_text())
    ]


CASES = _read()

"""Options and hooks of pytest for the tests of the cases of docs/reliability.md."""

from __future__ import annotations

import pytest

from casekit import marks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--cases``, which selects tests by the numbers of their cases."""
    parser.getgroup("selection").addoption(
        "--cases", metavar="NUMBERS", help='run the tests of cases, as in "18 47"; "": of all cases'
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the cases of each test in the JUnit report, and select tests by ``--cases``."""
    wanted: str | None = config.getoption("--cases")
    numbers = {int(number) for number in (wanted or "").split()}
    selected = []
    for item in items:
        found = [mark for mark in marks(item) if not numbers or mark.number in numbers]
        tests = dict.fromkeys(mark.test for mark in found)
        item.user_properties += [("case", test) for test in tests]
        if found:
            selected.append(item)
    if wanted is not None:
        config.hook.pytest_deselected(items=[item for item in items if item not in set(selected)])
        items[:] = selected

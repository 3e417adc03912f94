"""Puts cases and results into docs/reliability.md: ``python -m casekit.table [JUNIT_FILE]...``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from casekit import CASES, Case
from casekit.results import Result, of, of_run, read, write
from testkit.repository import ROOT

PAGE = ROOT / "docs" / "reliability.md"
_BEGIN, _END = "<!-- cases begin -->\n", "<!-- cases end -->\n"


def page(text: str, results: Mapping[str, Result]) -> str:
    """The page with the list and the results as they are now."""
    before, _, rest = text.partition(_BEGIN)
    table = "".join(f"{line}\n" for line in _table(results))
    return before + _BEGIN + table + _END + rest.partition(_END)[2]


def _table(results: Mapping[str, Result]) -> Iterator[str]:
    yield "| # | fault | expected | tier | result | tests | not tested yet |"
    yield "|---|---|---|---|---|---|---|"
    for case in CASES:
        told = (str(case.number), case.fault, case.expected, case.tier, of(case, results))
        yield f"| {' | '.join((*told, _tests(case), case.missing))} |"


def _tests(case: Case) -> str:
    """By file, without what all have in common."""
    return ", ".join(f"`{test.removeprefix('tests/').replace('test_', '')}`" for test in case.tests)


def main(reports: list[str]) -> int:
    """Take over what the runs have found, and write the page; 1: a test has failed."""
    results = read()
    for report in reports:
        results |= of_run(Path(report))
    write(results)
    results = read()
    PAGE.write_text(page(PAGE.read_text(), results))
    wrong = [
        case.number for case in CASES if any(results[t].failed for t in case.tests if t in results)
    ]
    print(f"{len(CASES)} cases, failed: {', '.join(map(str, wrong)) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

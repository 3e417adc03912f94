"""Put the cases, their tests and results into docs/reliability.md.

``python -m casekit.table [JUNIT_FILE]...`` takes over the results of runs first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from casekit import CASES, Mark
from casekit.collection import collected
from casekit.results import Result, of_run, read, summary, write
from testkit.repository import ROOT

PAGE = ROOT / "docs" / "reliability.md"
_BEGIN, _END = "<!-- cases begin -->\n", "<!-- cases end -->\n"


def page(text: str, marks: Iterable[Mark], results: Mapping[str, Result]) -> str:
    """Return the text of the page with a new table."""
    before, _, rest = text.partition(_BEGIN)
    table = "".join(f"{line}\n" for line in _table(list(marks), results))
    return before + _BEGIN + table + _END + rest.partition(_END)[2]


def _table(marks: list[Mark], results: Mapping[str, Result]) -> Iterator[str]:
    yield "| # | fault | expected | tier | result | tests | not tested yet |"
    yield "|---|---|---|---|---|---|---|"
    for case in CASES:
        tests = [mark.test for mark in marks if mark.number == case.number]
        columns = (str(case.number), case.fault, case.expected, case.tier)
        names = ", ".join(f"`{_short(test)}`" for test in tests)
        yield f"| {' | '.join((*columns, summary(tests, results), names, case.missing))} |"


def _short(test: str) -> str:
    return test.removeprefix("tests/").replace("test_", "")


def main(reports: list[str]) -> int:
    """Keep the results of the runs and write the page; return 1 if a test has failed."""
    results = read()
    for report in reports:
        results |= of_run(Path(report))
    marks = collected()
    write(results, [mark.test for mark in marks])
    results = read()
    PAGE.write_text(page(PAGE.read_text(), marks, results))
    failed = {mark.number for mark in marks if mark.test in results and results[mark.test].failed}
    print(f"{len(CASES)} cases, failed: {', '.join(map(str, sorted(failed))) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Puts the results of ``make faults`` into docs/faults.md: ``python -m faultkit.table RESULTS``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from faultkit.cases import ACTIONS, DELAY_S, FULL_S
from pliant.faults.registry import POINTS
from testkit.repository import ROOT

PAGE = ROOT / "docs" / "faults.md"
_BETWEEN = "<!-- {0} begins -->\n", "<!-- {0} ends -->\n"

Row = Mapping[str, Any]

#: Kinds of ranks, as the page calls them.
_RANKS = {
    "joining-rank": "joining rank",
    "leaver": "leaving rank",
    "stayer": "remaining rank",
    "old": "remaining rank",
}


def main(arguments: list[str]) -> int:
    """Write both tables of the page."""
    rows = [json.loads(line) for line in Path(arguments[0]).read_text().splitlines()]
    page = PAGE.read_text(encoding="utf-8")
    page = replaced(page, "results", "".join(f"{line}\n" for line in results(rows)))
    PAGE.write_text(replaced(page, "points", points()), encoding="utf-8")
    wrong = [row for row in last(rows).values() if row["verdict"] == "WRONG"]
    print(f"{len(last(rows))} cases, {len(wrong)} wrong")
    return 1 if wrong else 0


def replaced(page: str, name: str, text: str) -> str:
    """The page with another text between two marks."""
    begin, end = (mark.format(name) for mark in _BETWEEN)
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


def points() -> str:
    """The list of failpoints."""
    lines = [
        f"| `{point.name}` | {point.meaning} | "
        f"{', '.join(f'`{action}`' for action in point.extra_actions)} |"
        for point in POINTS
    ]
    heading = [
        "| name | what has happened, or is about to | further actions |",
        "|---|---|---|",
    ]
    return "\n".join([*heading, *lines]) + "\n"


def last(rows: Iterable[Row]) -> dict[tuple[str, ...], Row]:
    """The last result of each case."""
    return {_key(row): row for row in rows}


def _key(row: Row) -> tuple[str, ...]:
    case = row["case"]
    return row["transport"], case["kind"], case["point"], case["who"], case["action"]


def results(rows: Iterable[Row]) -> Iterator[str]:
    """A table for each transport, with a line for each place and a column for each fault."""
    found = last(rows)
    for transport in sorted({key[0] for key in found}):
        yield from ("", f"### {transport}", "")
        yield f"| in a | failpoint | {' | '.join(_heading(action) for action in ACTIONS)} |"
        yield "|---|---|" + "---|" * len(ACTIONS)
        for point in POINTS:
            for key in sorted({key[:4] for key in found if key[2] == point.name}):
                if key[0] == transport:
                    cells = [_cell(found.get((*key, action))) for action in ACTIONS]
                    who = f" ({_RANKS.get(key[3], key[3])})" if key[3] else ""
                    yield f"| {key[1]} | `{key[2]}`{who} | {' | '.join(cells)} |"
    yield ""


def _heading(action: str) -> str:
    if action == "full-disk":
        return f"full disk for {FULL_S:g} s"
    return f"delay of {DELAY_S:g} s" if action == "delay" else action


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row["case"]["kind"] not in ("grow", "shrink"):
        return f"ended, {row.get('seconds', 0.0):.1f} s"  # with its code, or with a reason
    if row["verdict"] not in ("FAILED", "NODE_FAIL"):
        return f"{row['verdict']}, {row.get('seconds', 0.0):.1f} s"
    stage = re.search(r"\(stage (\w+)\)", row["reason"])
    what = f"stage {stage[1]}" if stage else "a rank was lost"
    return f"{row['verdict']} ({what}), {row['seconds']:.1f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

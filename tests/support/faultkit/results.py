"""Results that are kept, for the table in docs/faults.md and so that nothing is done twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from faultkit.bed import Bed, Beds
from faultkit.cases import Case
from faultkit.run import Result

#: Where; not set: nowhere.
RESULTS = os.environ.get("PLIANT_FAULT_RESULTS", "")


def check(beds: Beds, case: Case, transport: str, run: Callable[[Bed, Case], Result]) -> None:
    """Run a case and keep what came of it.

    Raises:
        AssertionError: something is not well.
    """
    with beds.use(transport) as bed:
        try:
            _record(asdict(result := run(bed, case)), transport)
        except BaseException as error:
            _record({"case": asdict(case), "verdict": "WRONG", "reason": str(error)}, transport)
            raise
    print(f"{result.verdict} after {result.seconds:.1f} s: {result.reason}")


def missing(wanted: list[tuple[str, Case]]) -> list[tuple[str, Case]]:
    """Those of which there is no good result yet; none, if results are not kept."""
    if not RESULTS:
        return []
    done = Path(RESULTS).read_text().splitlines() if Path(RESULTS).exists() else []
    rows = [row for row in map(json.loads, done) if row["verdict"] != "WRONG"]
    good = [(row["transport"], row["case"]) for row in rows]
    return [
        (transport, case) for transport, case in wanted if (transport, asdict(case)) not in good
    ]


def _record(result: dict[str, object], transport: str) -> None:
    if RESULTS:
        with Path(RESULTS).open("a") as file:
            file.write(json.dumps({**result, "transport": transport}) + "\n")

"""A fault in every step of a job: it is there once, runs once, and ends as it should.

Run ``make faults`` for all of them; here each place dies once.
"""

from __future__ import annotations

import pytest

from faultkit import Beds, Case, check, ci_run_cases, missing, run_cases, run_life

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The bed outlives a test, and looks for what is left behind after each by itself."""


@pytest.mark.parametrize("case", ci_run_cases(), ids=lambda case: case.name)
def test_a_fault(beds: Beds, case: Case) -> None:
    check(beds, case, "ofi", run_life)


@pytest.mark.faults
@pytest.mark.parametrize(
    "case",
    [case for _, case in missing([("ofi", case) for case in run_cases()])],
    ids=lambda case: case.name,
)
def test_every_fault(beds: Beds, case: Case) -> None:
    check(beds, case, "ofi", run_life)

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


@pytest.mark.case(1, param="server.submit.before_commit")
@pytest.mark.case(2, param="server.submit.after_commit")
@pytest.mark.case(3, param="server.start.after_commit")
@pytest.mark.case(4, param="server.start.sent")
@pytest.mark.case(6, param="server.exits.in")
@pytest.mark.case(6, param="server.end.before_commit")
@pytest.mark.case(6, param="server.end.after_commit")
@pytest.mark.case(9, param="server.word")
@pytest.mark.case(9, param="server.kill")
@pytest.mark.case(10)
@pytest.mark.case(16, param="server.submit.before_commit-full-disk")
@pytest.mark.case(17, param="server.end.before_commit-full-disk")
@pytest.mark.case(17, param="shim.exits.before_save-full-disk")
@pytest.mark.case(23, param="shim")
@pytest.mark.case(32, param="drop")
@pytest.mark.case(32, param="double")
@pytest.mark.parametrize("case", ci_run_cases(), ids=lambda case: case.name)
def test_a_fault_in_the_life_of_a_job_loses_nothing(beds: Beds, case: Case) -> None:
    check(beds, case, "ofi", run_life)


@pytest.mark.faults
@pytest.mark.parametrize(
    "case",
    [case for _, case in missing([("ofi", case) for case in run_cases()])],
    ids=lambda case: case.name,
)
def test_every_fault(beds: Beds, case: Case) -> None:
    check(beds, case, "ofi", run_life)

"""A fault in every step of a resize: the job is at its old or its new size, or FAILED with a stage.

Run ``make faults`` for all of them; here is a part.
"""

from __future__ import annotations

import pytest

from faultkit import Beds, Case, all_cases, check, ci_cases, missing, run_case

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]

TRANSPORTS = ("ofi", "ucx")
#: Of the transport only the ranks know.
EVERY = [
    (transport, case)
    for transport in TRANSPORTS
    for case in all_cases()
    if transport == "ofi" or case.process == "appkit"
]


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The bed outlives a test, and looks for what is left behind after each by itself."""


@pytest.mark.case(7, param="shrink-server")
@pytest.mark.case(8, param="grow-server")
@pytest.mark.case(10)
@pytest.mark.case(32, param="drop")
@pytest.mark.case(32, param="double")
@pytest.mark.parametrize("case", ci_cases(), ids=lambda case: case.name)
def test_a_fault_in_a_resize_loses_nothing(beds: Beds, case: Case) -> None:
    check(beds, case, "ofi", run_case)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("transport", "case"), missing(EVERY), ids=lambda value: getattr(value, "name", value)
)
def test_every_fault(beds: Beds, transport: str, case: Case) -> None:
    check(beds, case, transport, run_case)

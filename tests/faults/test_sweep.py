"""Every failpoint kills whoever comes by, three times each, while jobs of all kinds come and go.

Nothing is lost, doubled or left over. ``PLIANT_SWEEP=all`` is the long form (or a part of the
names: ``PLIANT_SWEEP=shim``), ``PLIANT_TEST_SEED`` another mix.
"""

from __future__ import annotations

import os

import pytest

from faultkit import Beds
from faultkit.sweep import sweep
from pliant.faults.registry import POINTS

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(600)]

SEED = int(os.environ.get("PLIANT_TEST_SEED", "1"))
#: Each of another step. Of a start, `test_lives.py` kills the server at each failpoint.
FEW = (
    "server.go.after_commit",
    "controller.exits.in",
    "shim.kill",
    "appkit.move.array",
)
WANTED = os.environ.get("PLIANT_SWEEP", "")
NAMES = [
    point.name
    for point in POINTS
    if (WANTED == "all" or WANTED in point.name if WANTED else point.name in FEW)
]


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The bed outlives a test, and looks for what is left behind after each by itself."""


@pytest.mark.case(10)
@pytest.mark.parametrize("point", NAMES)
def test_a_process_that_dies_at_a_failpoint_three_times_loses_nothing(
    beds: Beds, point: str
) -> None:
    print(f"seed {SEED}")
    with beds.use("ofi") as bed:
        print(f"{point}: {sweep(bed, point, SEED)}")

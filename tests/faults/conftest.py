"""The cluster on which faults happen; tests/support/faultkit has all the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faultkit import Beds


@pytest.fixture(scope="module")
def beds() -> Iterator[Beds]:
    beds = Beds()
    yield beds
    beds.close()

"""Priorities that are given to random shares of the jobs."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pliant.simulator.inputs.models.priorities import parse_priorities
from pliant.simulator.inputs.simulation_errors import SettingsError


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=2).map(sorted))
@example([2, 841])  # as floats, these shares are more than 100 together
def test_shares_with_decimals_may_add_up_to_all_jobs(cuts: list[int]) -> None:
    tenths = [cuts[0], cuts[1] - cuts[0], 1000 - cuts[1]]
    text = ",".join(f"{each // 10}.{each % 10}:{place}" for place, each in enumerate(tenths))
    assert [priority for _, priority in parse_priorities(text)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("60:1,40.1:2", "100.1 percent"),
        ("10:5,", "''"),
        ("10:5,20", "'20'"),
        ("x:5", "'x:5'"),
        ("10:5000000", "5000000"),
    ],
)
def test_the_wrong_part_is_named(text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        parse_priorities(text)

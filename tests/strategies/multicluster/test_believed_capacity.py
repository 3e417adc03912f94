"""What the scheduler believes between two reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pliant.strategies.multicluster.believed_capacity import BelievedCapacity


def test_between_reports_it_only_falls() -> None:
    believed = BelievedCapacity()
    assert believed.idle("a") == 0
    believed.renew({"a": 8, "b": 3}, {"a": 2})
    assert (believed.idle("a"), believed.idle("b")) == (6, 3)
    believed.hand_out("a", 4)
    assert believed.idle("a") == 2
    # A cluster that does not report cannot be used.
    believed.renew({"a": 5}, {})
    assert (believed.idle("a"), believed.idle("b")) == (5, 0)


@given(st.integers(0, 20), st.lists(st.integers(0, 9)))
def test_it_is_never_negative(idle: int, given_out: list[int]) -> None:
    believed = BelievedCapacity()
    believed.renew({"a": idle}, {"a": 3})
    for number in given_out:
        believed.hand_out("a", number)
        assert 0 <= believed.idle("a") <= idle

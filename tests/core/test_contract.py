"""The value of an end over time."""

import math

import pytest

from pliant.core.contract import Contract


def test_value_falls_from_the_soft_to_the_hard_deadline() -> None:
    contract = Contract(deadline_s=100.0, profit=8.0, penalty=3.0)
    assert [contract.value(1000.0, end) for end in (1000.0, 1050.0, 1075.0, 1100.0, 1100.1)] == [
        8.0, 8.0, 4.0, 0.0, -3.0
    ]  # fmt: skip
    assert contract.deadline(1000.0) == 1100.0


@pytest.mark.parametrize("soft", [0.0, 1.0])
def test_the_soft_share_may_be_all_or_nothing(soft: float) -> None:
    contract = Contract(deadline_s=10.0, profit=2.0, soft=soft)
    assert contract.value(0.0, 10.0) == (2.0 if soft else 0.0)
    assert contract.value(0.0, 0.0) == 2.0


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("deadline_s", {"deadline_s": -1.0}),
        ("deadline_s", {"deadline_s": math.inf}),
        ("profit", {"deadline_s": 1.0, "profit": math.nan}),
        ("soft", {"deadline_s": 1.0, "soft": 1.5}),
        ("penalty", {"deadline_s": 1.0, "penalty": -1.0}),
    ],
)
def test_nonsense_is_refused_with_the_field(field: str, values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=field):
        Contract(**values)

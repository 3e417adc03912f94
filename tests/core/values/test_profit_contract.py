"""The value of an end over time."""

import math

import pytest

from pliant.core.values.profit_contract import (
    Contract,
    contract_from_record,
    parse_profit,
    present_profit,
)


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


@pytest.mark.parametrize(
    ("text", "contract"),
    [
        ("", Contract(60.0)),
        ("1000", Contract(60.0, 1000.0)),
        ("2.5:penalty=1", Contract(60.0, 2.5, penalty=1.0)),
        ("1000:soft=0.25:penalty=50", Contract(60.0, 1000.0, 0.25, 50.0)),
        ("1000:penalty=50:soft=1", Contract(60.0, 1000.0, 1.0, 50.0)),
    ],
)
def test_a_profit_function_is_read(text: str, contract: Contract) -> None:
    assert parse_profit(text, 60.0) == contract
    assert contract_from_record({**contract.to_record(), "from_a_newer_version": 1}) == contract


@pytest.mark.parametrize(
    "text",
    ["x", "-1", "nan", "inf", "1:soft", "1:soft=2", "1:soft=x", "1:soft=0:soft=1", "1:hard=1", ":"],
)
def test_what_is_no_profit_function_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="soft") as error:
        parse_profit(text, 60.0)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("state", "end", "promised", "now", "profit"),
    [
        ("RUNNING", 75.0, True, 10.0, 4.0),
        ("RUNNING", 75.0, True, 90.0, 1.6),  # it should have ended, and may end at any time
        ("RUNNING", 75.0, True, 101.0, -3.0),
        ("RUNNING", None, True, 10.0, None),
        ("COMPLETED", 75.0, True, 1e6, 4.0),
        ("FAILED", 10.0, True, 1e6, -3.0),
        ("REJECTED", 10.0, False, 1e6, 0.0),
    ],
)
def test_the_present_profit(
    state: str, end: float | None, promised: bool, now: float, profit: float | None
) -> None:
    contract = Contract(deadline_s=100.0, profit=8.0, penalty=3.0)
    found = present_profit(contract, state=state, submit=0.0, end=end, promised=promised, now=now)
    assert found == pytest.approx(profit)

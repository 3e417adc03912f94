"""Options: parameters on one side, texts on the other."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.strategies import (
    OptionError,
    StrategyOption,
    UnknownOptionError,
    load_strategy,
    registry,
    strategy_options,
)
from pliant.strategies.interface.options import convert, describe
from pliant.strategies.policies.offers_for_size_requests import WithSizeRequests
from pliant.strategies.queueing import Composed


class Example:
    """Something with options.

    Args:
        count: how many,
            and no more.
        share: how much.
        donor_order: who goes first.
        at_most: when it ends.

    Raises:
        ValueError: never.
    """

    def __init__(
        self,
        *,
        count: int = 3,
        share: float = 0.5,
        eager: bool = False,
        donor_order: Literal["first", "last"] = "first",
        at_most: int | None = None,
        label: str = "",
    ) -> None:
        if count > 100:
            raise ValueError(f"count {count} is above 100")


def test_what_there_is_to_set() -> None:
    assert describe(Example) == [
        StrategyOption("count", "a whole number", 3, "how many, and no more."),
        StrategyOption("share", "a number", 0.5, "how much."),
        StrategyOption("eager", "true or false", False, ""),
        StrategyOption("donor-order", "one of first, last", "first", "who goes first."),
        StrategyOption("at-most", "a whole number or none", None, "when it ends."),
        StrategyOption("label", "text", "", ""),
    ]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "12", 12),
        ("count", " -1 ", -1),
        ("share", "1e3", 1000.0),
        ("share", "7200", 7200.0),
        ("share", "inf", float("inf")),
        ("eager", "Yes", True),
        ("eager", "off", False),
        ("eager", True, True),
        ("donor-order", "last", "last"),
        ("donor_order", "first", "first"),
        ("at-most", "none", None),
        ("at-most", "4", 4),
        ("at-most", 4, 4),
        ("label", "a b", "a b"),
    ],
)
def test_option_texts_are_converted_to_their_types(name: str, text: object, value: object) -> None:
    (found,) = convert("example", Example, {name: text}).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("count", "1.5", "a whole number"),
        ("count", "1_000", "a whole number"),
        ("count", "\u0661", "a whole number"),
        ("count", "", "a whole number"),
        ("share", "much", "a number"),
        ("share", "nan", "a number"),
        ("share", "\u0661", "a number"),
        ("eager", "2", "true or false"),
        ("donor-order", "middle", "one of first, last"),
        ("at-most", "never", "a whole number or none"),
    ],
)
def test_values_that_do_not_fit(name: str, text: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        convert("example", Example, {name: text})
    assert str(caught.value) == f"strategy example: option {name}: {text!r} is not {expected}"


def test_unknown_options_list_the_known_ones() -> None:
    with pytest.raises(UnknownOptionError) as caught:
        convert("example", Example, {"counts": "1"})
    assert str(caught.value) == (
        "strategy example has no option 'counts'; it has: "
        "count, share, eager, donor-order, at-most, label"
    )
    with pytest.raises(UnknownOptionError, match="it has: order, requests"):
        load_strategy("fcfs", {"x": "1"})


def test_the_same_option_in_two_spellings() -> None:
    with pytest.raises(OptionError, match="donor_order is given twice"):
        convert("example", Example, {"donor-order": "first", "donor_order": "last"})


@given(st.floats(allow_nan=False), st.integers())
def test_numbers_come_back(share: float, count: int) -> None:
    found = convert("example", Example, {"share": repr(share), "count": str(count)})
    assert found == {"share": share, "count": count}


def test_what_the_strategy_refuses_is_an_option_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(Composed):
        def __init__(self, *, count: int = 3) -> None:
            super().__init__()
            if count > 100:
                raise ValueError(f"count {count} is above 100")

    class Point:
        value = "picky"

        def load(self) -> type:
            return Picky

    monkeypatch.setattr(registry, "_points", lambda: {"picky": Point()})
    made = load_strategy("picky", {"count": "7"})
    assert isinstance(made, WithSizeRequests)
    assert isinstance(made.inner, Picky)
    assert [option.name for option in strategy_options("picky")] == ["count", "order", "requests"]
    with pytest.raises(OptionError, match=r"^strategy picky: count 101 is above 100$"):
        load_strategy("picky", {"count": "101"})


def test_something_that_cannot_make_a_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("odd", "math:pi", registry.GROUP)
    monkeypatch.setattr(registry, "_points", lambda: {"odd": point})
    with pytest.raises(registry.UnknownStrategyError, match="not a pliant Strategy"):
        load_strategy("odd")

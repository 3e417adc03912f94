"""Strategies by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import pytest

from pliant.strategies import (
    Strategy,
    UnknownStrategyError,
    is_own,
    known_strategies,
    load_strategy,
    registry,
)

NAMES = ["equipartition", "uniform-first-fit", "profit-simple", "profit-lazy", "max-fit"]
NAMES += ["fcfs", "sjf", "ljf", "dynp", "easy-min", "easy-avg", "easy-pref", "steepest-ascent"]


@pytest.mark.parametrize("name", NAMES)
def test_the_names_on_the_command_line(name: str) -> None:
    assert name in known_strategies()
    assert isinstance(load_strategy(name), Strategy)


def test_every_registered_strategy_can_be_loaded() -> None:
    for name in known_strategies():
        assert isinstance(load_strategy(name), Strategy)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownStrategyError) as caught:
        load_strategy("magic")
    assert "'magic' is not known" in str(caught.value)
    for name in known_strategies():
        assert name in str(caught.value)


def test_something_else_than_a_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("odd", "builtins:dict", registry.GROUP)
    monkeypatch.setattr(registry, "_points", lambda: {"odd": point})
    with pytest.raises(UnknownStrategyError, match=r"'odd' \(builtins:dict\) is not a pliant"):
        load_strategy("odd")


def test_one_that_is_not_installed_is_named_by_its_place() -> None:
    where = "pliant.strategies.queueing_presets:fcfs"
    assert isinstance(load_strategy(where), Strategy)
    assert (is_own("fcfs"), is_own(where)) == (True, False)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such:x", "cannot be loaded: ModuleNotFoundError: No module named 'no_such'"),
        ("json:nope", "cannot be loaded: AttributeError"),
        ("json:", "is not known; known are: .*, and module:attribute"),
        ("json:JSONDecoder", "is not a pliant Strategy"),
    ],
)
def test_a_place_where_there_is_none(name: str, says: str) -> None:
    with pytest.raises(UnknownStrategyError, match=says):
        load_strategy(name)


def test_nobody_takes_a_name_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = list(entry_points(group=registry.GROUP))
    theirs = EntryPoint("fcfs", "builtins:dict", registry.GROUP)
    for order in ([theirs, *ours], [*ours, theirs]):
        monkeypatch.setattr(registry, "entry_points", lambda order=order, **_: order)
        assert is_own("fcfs")

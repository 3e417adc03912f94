"""Strategies by name."""

from __future__ import annotations

import pytest

from pliant.strategies import Strategy, UnknownStrategyError, known_strategies, load_strategy


@pytest.mark.parametrize("name", ["equipartition", "uniform-first-fit", "fcfs"])
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
    from importlib.metadata import EntryPoint

    from pliant.strategies import registry

    point = EntryPoint("odd", "builtins:dict", registry.GROUP)
    monkeypatch.setattr(registry, "_points", lambda: {"odd": point})
    with pytest.raises(UnknownStrategyError, match=r"'odd' \(builtins:dict\) is not a pliant"):
        load_strategy("odd")

"""Strategies by name: ours and whatever is installed under the entry-point group."""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pliant.strategies.base import Strategy
from pliant.strategies.options import OptionError, StrategyOption, convert, describe

GROUP = "pliant.strategies"


class UnknownStrategyError(ValueError):
    """No strategy has this name; the message lists those that are known."""


def known_strategies() -> list[str]:
    """All names, sorted."""
    return sorted(_points())


def load_strategy(name: str, options: Mapping[str, object] | None = None) -> Strategy:
    """A new instance of the strategy with this name.

    Args:
        name: as on the command line.
        options: values by name, as text or as they are; ``-`` and ``_`` are the same in names.

    Raises:
        UnknownStrategyError: there is none, or it is not a strategy.
        UnknownOptionError: it has no such option.
        OptionError: a value does not fit, or two of them do not go together.
    """
    point, make = _factory(name)
    values = convert(name, make, options or {})
    try:
        made = make(**values)
    except ValueError as error:
        raise OptionError(f"strategy {name}: {error}") from error
    if not isinstance(made, Strategy):
        raise UnknownStrategyError(f"strategy {name!r} ({point.value}) is not a pliant Strategy")
    return made


def strategy_options(name: str) -> list[StrategyOption]:
    """The options of a strategy, in the order of its parameters.

    Raises:
        UnknownStrategyError: there is no strategy with this name.
    """
    return describe(_factory(name)[1])


def _factory(name: str) -> tuple[EntryPoint, Callable[..., Any]]:
    point = _points().get(name)
    if point is None:
        raise UnknownStrategyError(
            f"strategy {name!r} is not known; known are: {', '.join(known_strategies())}"
        )
    make = point.load()
    if not callable(make):
        raise UnknownStrategyError(f"strategy {name!r} ({point.value}) is not a pliant Strategy")
    return point, make


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}

"""Strategies by name: ours and whatever is installed under the entry-point group."""

from importlib.metadata import EntryPoint, entry_points

from pliant.strategies.base import Strategy

GROUP = "pliant.strategies"


class UnknownStrategyError(ValueError):
    """No strategy has this name; the message lists those that are known."""


def known_strategies() -> list[str]:
    """All names, sorted."""
    return sorted(_points())


def load_strategy(name: str) -> Strategy:
    """A new instance of the strategy with this name.

    Raises:
        UnknownStrategyError: there is none, or it is not a strategy.
    """
    point = _points().get(name)
    if point is None:
        raise UnknownStrategyError(
            f"strategy {name!r} is not known; known are: {', '.join(known_strategies())}"
        )
    made = point.load()()
    if not isinstance(made, Strategy):
        raise UnknownStrategyError(f"strategy {name!r} ({point.value}) is not a pliant Strategy")
    return made


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}

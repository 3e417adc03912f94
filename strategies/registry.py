"""Strategies by name: Pliant's own, and all that are installed under the entry-point group.

A strategy that is not installed is named by its module and its class, ``module:attribute``.
"""

import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pliant.core.support.base_error import PliantError
from pliant.strategies.interface.base import Strategy
from pliant.strategies.interface.options import OptionError, StrategyOption, convert, describe
from pliant.strategies.policies.offers_for_size_requests import WithSizeRequests
from pliant.strategies.queue_order_option import WithQueueOrder

GROUP = "pliant.strategies"
#: Wrappers of every strategy, with the option that each of them handles. So every strategy has
#: these options.
_WRAPPERS: Mapping[str, Callable[..., Strategy]] = {
    "order": WithQueueOrder,
    "requests": WithSizeRequests,
}
_COMMON_OPTIONS = [
    option for name, made in _WRAPPERS.items() for option in describe(made) if option.name == name
]
#: The distribution whose strategies are trusted: their plans are not checked.
OWN = "pliant"


class UnknownStrategyError(PliantError, ValueError):
    """No strategy has this name, or it cannot be loaded. The message lists the known names."""


def known_strategies() -> list[str]:
    """Return the names of all strategies, sorted."""
    return sorted(_points())


def load_strategy(name: str, options: Mapping[str, object] | None = None) -> Strategy:
    """Return a new strategy by its name, with the options that all strategies have in common.

    Args:
        name: the name as on the command line, or ``module:attribute``.
        options: values by name, as texts or converted; in names, ``-`` and ``_`` are the same.

    Raises:
        UnknownStrategyError: there is no such strategy, or it cannot be made.
        UnknownOptionError: the strategy has no such option.
        OptionError: a value is invalid, or two values contradict each other.
    """
    point, make = _factory(name)
    common = _common_options(make)
    own = {key: value for key, value in (options or {}).items() if key not in common}
    values = convert(name, make, own, common)
    try:
        made = make(**values)
    except ValueError as error:
        raise OptionError(f"strategy {name}: {error}") from error
    except Exception as error:  # Code of third parties may raise anything.
        raise UnknownStrategyError(
            f"strategy {name!r} ({point.value}) cannot be made: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, Strategy):
        raise UnknownStrategyError(f"strategy {name!r} ({point.value}) is not a pliant Strategy")
    given = {key: value for key, value in (options or {}).items() if key in common}
    if given.get("order", "fcfs") != "fcfs":
        made = WithQueueOrder(made, **convert(name, WithQueueOrder, {"order": given["order"]}))  # type: ignore[arg-type]
    requests = {key: value for key, value in given.items() if key == "requests"}
    return WithSizeRequests(made, **convert(name, WithSizeRequests, requests))  # type: ignore[arg-type]


def _common_options(make: Callable[..., Any]) -> list[str]:
    """Return the names of those common options that the strategy does not define itself.

    Common options are the ones that every strategy has.
    """
    taken = {option.name for option in describe(make)}
    return [option.name for option in _COMMON_OPTIONS if option.name not in taken]


def strategy_options(name: str) -> list[StrategyOption]:
    """Return the options of a strategy, in the order of its parameters.

    Raises:
        UnknownStrategyError: there is no strategy with this name.
    """
    make = _factory(name)[1]
    common = _common_options(make)
    return [*describe(make), *(option for option in _COMMON_OPTIONS if option.name in common)]


def is_own(name: str) -> bool:
    """Return whether Pliant itself provides a strategy, by the origin of its entry point.

    Raises:
        UnknownStrategyError: there is no strategy with this name.
    """
    return _is_ours(_point(name))


def _point(name: str) -> EntryPoint:
    point = _points().get(name)
    if point is None and re.fullmatch(r"[\w.]+:[\w.]+", name):
        return EntryPoint(name, name, GROUP)
    if point is None:
        raise UnknownStrategyError(
            f"strategy {name!r} is not known; known are: {', '.join(known_strategies())}, "
            "and module:attribute"
        )
    return point


def _factory(name: str) -> tuple[EntryPoint, Callable[..., Any]]:
    point = _point(name)
    try:
        make = point.load()
    except Exception as error:  # Code of third parties may raise anything when it is imported.
        raise UnknownStrategyError(
            f"strategy {name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not callable(make):
        raise UnknownStrategyError(f"strategy {name!r} ({point.value}) is not a pliant Strategy")
    return point, make


def _points() -> dict[str, EntryPoint]:
    """Return the entry points of strategies by name. Pliant's own names cannot be replaced.

    The origin of an entry point is determined only if another one has the same name, because this
    requires parsing the metadata of a whole distribution. Doing so for all names took a tenth of
    the time of the server's start.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name not in found or _is_ours(point):
            found[point.name] = point
    return found


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == OWN

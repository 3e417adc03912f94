"""Scheduling strategies: an immutable view in, a plan out.

One file per strategy, each a pure function of what it is shown (no clock, no chance, ties broken
by explicit keys), with the paper and section it comes from.

May import: the standard library and ``pliant.core``.
"""

from typing import TYPE_CHECKING

from pliant.core.support.lazy_imports import lazy_names

if TYPE_CHECKING:
    from pliant.strategies.interface.base import Strategy
    from pliant.strategies.interface.options import OptionError, StrategyOption, UnknownOptionError
    from pliant.strategies.policies.with_size_requests import served, with_size_requests
    from pliant.strategies.registry import (
        UnknownStrategyError,
        is_own,
        known_strategies,
        load_strategy,
        strategy_options,
    )

__all__ = [
    "OptionError",
    "Strategy",
    "StrategyOption",
    "UnknownOptionError",
    "UnknownStrategyError",
    "is_own",
    "known_strategies",
    "load_strategy",
    "served",
    "strategy_options",
    "with_size_requests",
]

__getattr__ = lazy_names(
    __name__,
    {
        "OptionError": "interface.options",
        "Strategy": "interface.base",
        "StrategyOption": "interface.options",
        "UnknownOptionError": "interface.options",
        "UnknownStrategyError": "registry",
        "is_own": "registry",
        "known_strategies": "registry",
        "load_strategy": "registry",
        "served": "policies.with_size_requests",
        "with_size_requests": "policies.with_size_requests",
        "strategy_options": "registry",
    },
)

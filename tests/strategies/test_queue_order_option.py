"""The common option ``order``: another order of the queue for any strategy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from corekit.views import make_view, waiting
from pliant.core.model.usage import Usage
from pliant.core.model.views_and_plans import View
from pliant.core.values.fair_share_settings import Shares
from pliant.strategies import known_strategies, load_strategy
from pliant.strategies.interface.options import OptionError
from pliant.strategies.policies.queue_order import in_order


def competing() -> View:
    """Return a view in which alice has used more than bob, and her jobs came first."""
    queue = (
        waiting(1, "8", 10.0, user="alice"),
        waiting(2, "8", 10.0, user="bob"),
        waiting(3, "8", 10.0, user="bob", priority=1),
    )
    usage = (Usage("", "alice", 100.0, 0.0, 0), Usage("", "bob", 50.0, 0.0, 0))
    return replace(make_view(8, queue), usage=usage, shares=Shares(math.inf))


def started(strategy: str, view: View, **options: object) -> list[int]:
    return [start.job for start in load_strategy(strategy, options).plan(view).starts]


@pytest.mark.parametrize("strategy", ["fairshare", "fairshare+easy", "fairshare+conservative"])
def test_the_user_with_less_usage_goes_first(strategy: str) -> None:
    # Among the jobs of a user, the priority decides.
    assert started(strategy, competing()) == [3]
    rich = replace(competing(), shares=Shares(math.inf, {"alice": 3.0}))
    assert started(strategy, rich) == [1]


@pytest.mark.parametrize("strategy", ["equipartition", "fcfs", "easy-min", "fpsma", "max-fit"])
def test_every_strategy_can_have_this_order(strategy: str) -> None:
    assert started(strategy, competing()) == [1]
    assert started(strategy, competing(), order="fairshare") == [3]
    assert started(strategy, competing(), order="priority") == [3]


def test_without_usage_the_order_is_that_of_arrival() -> None:
    view = replace(competing(), usage=(), shares=None)
    assert started("fairshare", view) == [1]
    # The priority of bob's second job does not matter for alice.
    assert [job.id for job in in_order("fairshare", view.waiting, view)] == [1, 3, 2]


def test_a_query_is_answered_for_this_order() -> None:
    view = competing()
    asked = replace(waiting(9, "8", 10.0, user="carol"), arrival=view.now)
    for strategy, options in (("fcfs", {"order": "fairshare"}), ("fairshare", {})):
        assert load_strategy(strategy, options).is_available(asked, view).start == view.now
    late = load_strategy("fcfs").is_available(asked, view).start
    assert late is not None
    assert late > view.now


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(OptionError, match="order"):
        load_strategy("fcfs", {"order": "random"})


@pytest.mark.parametrize("strategy", known_strategies())
def test_strategies_say_whether_they_use_usage(strategy: str) -> None:
    assert load_strategy(strategy).uses_usage == strategy.startswith("fairshare")
    assert load_strategy(strategy, {"order": "fairshare"}).uses_usage

"""What holds for every strategy that is registered, whoever wrote it: none is left out."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings

from corekit.plans import check, decide, views
from pliant.core.model.views_and_plans import View
from pliant.strategies import known_strategies, load_strategy

every = pytest.mark.parametrize("name", known_strategies())
quick = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@every
def test_plans_fit_any_view_and_are_the_same_again(name: str) -> None:
    # ``decide`` asks several times, and once with the memory gone through JSON.
    used, unused = load_strategy(name), load_strategy(name)

    @quick
    @given(views())
    def fits(view: View) -> None:
        fresh = deepcopy(unused)
        plan = decide(used, view)
        check(view, plan)
        assert fresh.allocate_processors(view) == plan, "it keeps nothing to itself"

    fits()


@every
def test_whoever_asks_gets_an_answer_that_fits(name: str) -> None:
    strategy = load_strategy(name)

    @quick
    @given(views())
    def answers(view: View) -> None:
        for job in view.waiting:
            found = strategy.is_available(job, view)
            assert found == strategy.is_available(job, view)
            assert found.reason or found.accepted
            if not found.accepted:
                assert (found.start, found.processors) == (None, 0)
                continue
            assert found.processors in job.sizes
            assert found.start is None or found.start >= view.now

    answers()

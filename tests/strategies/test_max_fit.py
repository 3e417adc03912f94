"""Ghafoor's maximum fit: the worked examples, the orders of donors, and every view."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from corekit.plans import check, decide, sizes_after, views
from corekit.rig import Rig
from corekit.simkit import by_id, job, rigid, run
from corekit.views import make_view, running, told, waiting
from pliant.core import commands
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.views_and_plans import View
from pliant.strategies import OptionError, load_strategy
from pliant.strategies.max_fit import MaxFit

MAX_FIT = MaxFit()


# ---------------------------------------------------------------- the paper's examples


def test_as_many_as_possible_then_the_first_is_topped_up() -> None:
    # L 1147: ten idle processors, three jobs 4-12.
    view = make_view(10, tuple(waiting(n, "4-12") for n in (1, 2, 3)))
    plan = decide(MAX_FIT, view)
    assert sizes_after(view, plan) == {1: 6, 2: 4}
    assert told(plan, view) == {3: "waits for at least 4 processors (available to it now: 0)"}


def test_few_are_asked_for_much() -> None:
    # L 1139: eight are needed, four jobs can give five each.
    active = tuple(running(n, 6 * (n - 1), 6, "1-6") for n in (1, 2, 3, 4))
    view = make_view(24, (waiting(9, "8"),), active)
    assert sizes_after(view, decide(MAX_FIT, view)) == {1: 1, 2: 3, 3: 6, 4: 6, 9: 8}


def test_a_power_of_two_gives_more_than_is_needed() -> None:
    # L 690-694: three idle, eight wanted, a job on eight that knows powers of two only.
    view = make_view(11, (waiting(9, "8"),), (running(1, 0, 8, "2-16:pow2"),))
    plan = decide(MAX_FIT, view)
    assert sizes_after(view, plan) == {1: 2, 9: 8}
    assert not plan.expands, "one processor stays idle"


def test_a_power_of_two_that_only_the_program_knows_of() -> None:
    jobs = [job(1, 0, "2-8", 8000), rigid(2, 0, 3, 1.0), rigid(3, 10, 8, 100)]
    result = run(jobs, 11, strategy="max-fit", answers="pow2")
    assert by_id(result)[3].start == 10
    assert [len(span.processors) for span in result.spans if span.job == 1] == [8, 2, 8]
    assert result.metrics["counters"] == 1


def test_nobody_passes_the_first_that_does_not_fit() -> None:
    view = make_view(8, (waiting(2, "6"), waiting(3, "1")), (running(1, 0, 4),))
    plan = decide(MAX_FIT, view)
    assert not plan.starts
    assert told(plan, view) == {
        2: "waits for at least 6 processors (available to it now: 4)",
        3: "waits for jobs before it",
    }


def test_idle_processors_first_then_those_of_others() -> None:
    view = make_view(10, (waiting(2, "2"), waiting(3, "3")), (running(1, 0, 7, "2-8"),))
    plan = decide(MAX_FIT, view)
    assert sizes_after(view, plan) == {1: 5, 2: 2, 3: 3}
    assert plan.starts[0].processors & view.free == plan.starts[0].processors


def test_what_is_idle_goes_to_the_earliest_started() -> None:
    active = (running(1, 0, 2, "2-5"), running(2, 2, 2, "2-8"), running(3, 4, 2))
    view = make_view(12, (waiting(9, "7"),), active)
    # The one that waits needs 7, of 6 idle: then those who run may have them.
    assert sizes_after(view, decide(MAX_FIT, view)) == {1: 5, 2: 5, 3: 2}


def test_never_both_in_one_cycle() -> None:
    active = (running(1, 0, 4, "1-4"), running(2, 4, 2, "2-8"))
    plan = decide(MAX_FIT, make_view(8, (waiting(9, "3"),), active))
    assert plan.shrinks
    assert not plan.expands


def test_in_the_core_a_partial_release_is_used_by_whoever_it_suffices_for() -> None:
    rig = Rig({"n1": 8}, "max-fit")
    rig.run(1, "1-8")
    assert rig.job(1).size == 8
    rig.submit(2, "2")
    rig.submit(3, "4")
    rig.counter(1, "6")
    # For both in the queue six would be needed; two are enough for the first.
    assert rig.one(commands.SendOffer).template.verb is Verb.ACCEPT
    rig.finish(1)
    assert (rig.job(1).size, rig.state(2), rig.state(3)) == (
        6,
        JobState.STARTING,
        JobState.PENDING,
    )


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("earliest", {1: 2, 2: 6, 3: 5}),
        ("latest", {1: 4, 2: 6, 3: 3}),
        ("most-first", {1: 4, 2: 4, 3: 5}),
        ("longest-running", {1: 4, 2: 6, 3: 3}),
        ("shortest-running", {1: 4, 2: 4, 3: 5}),
    ],
)
def test_who_gives_first(order: str, expected: dict[int, int]) -> None:
    active = (
        running(1, 0, 4, "1-8", end=2000.0),
        running(2, 4, 6, "1-8", end=1500.0),
        running(3, 10, 5, "1-8"),  # for ever
    )
    strategy = load_strategy("max-fit", {"donor-order": order})
    view = make_view(15, (waiting(9, "2"),), active)
    assert sizes_after(view, decide(strategy, view)) == expected | {9: 2}


@pytest.mark.parametrize(("order", "giver"), [("earliest", 1), ("latest", 3), ("most-first", 1)])
def test_who_gives_first_of_those_that_started_together(order: str, giver: int) -> None:
    active = tuple(replace(running(n, 4 * (n - 1), 4, "1-8"), started=500.0) for n in (1, 2, 3))
    strategy = load_strategy("max-fit", {"donor-order": order})
    view = make_view(12, (waiting(9, "2"),), active)
    assert sizes_after(view, decide(strategy, view)) == {1: 4, 2: 4, 3: 4, 9: 2} | {giver: 2}


def test_an_unknown_order_is_a_usage_error() -> None:
    with pytest.raises(OptionError, match="one of earliest, latest, most-first"):
        load_strategy("max-fit", {"donor-order": "oldest"})


# ---------------------------------------------------------------- is_available


def test_available_now_or_by_the_estimates() -> None:
    view = make_view(10, (), (running(1, 0, 7, "2-8", end=1500.0),))
    found = MAX_FIT.is_available(waiting(9, "2-4"), view)
    assert (found.start, found.processors, found.reason) == (1000.0, 3, "processors are idle")
    found = MAX_FIT.is_available(waiting(9, "5-9"), view)
    assert (found.start, found.processors) == (1000.0, 5)
    assert found.reason == "running jobs can shrink for it"
    found = MAX_FIT.is_available(waiting(9, "9"), view)
    assert (found.accepted, found.start) == (True, 1500.0)
    assert not MAX_FIT.is_available(waiting(9, "11"), view).accepted
    behind = replace(view, waiting=(waiting(2, "9", 100.0),))
    assert MAX_FIT.is_available(waiting(9, "2", 10.0), behind).start == 1600.0


# ---------------------------------------------------------------- for every view


@pytest.mark.parametrize("order", ["earliest", "latest", "most-first", "shortest-running"])
def test_plans_fit_the_machine_and_are_the_same_again(order: str) -> None:
    strategy = load_strategy("max-fit", {"donor-order": order})

    @given(views())
    def fits(view: View) -> None:
        plan = decide(strategy, view)
        check(view, plan)
        assert not (plan.shrinks and plan.expands)
        started = {start.job for start in plan.starts}
        order = [waiting.id in started for waiting in view.waiting]
        assert order == sorted(order, reverse=True), "nobody passes anybody"

    fits()

"""The three families: who gives, who gets, and what stays EASY."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corekit.replay import Job, Replay
from corekit.rig import Rig
from corekit.views import make_view, running, told, waiting
from pliant.core.model.negotiation import Verb
from pliant.core.model.views_and_plans import Plan, View
from pliant.core.values.processors import NONE, block, count
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies import load_strategy
from pliant.strategies.malleable_easy import MalleableEasy, easy_avg, easy_min, easy_pref
from pliant.strategies.queueing_presets import fcfs_easy

FAMILIES: dict[str, Callable[[], MalleableEasy]] = {
    "easy-min": easy_min,
    "easy-avg": easy_avg,
    "easy-pref": easy_pref,
}
families = pytest.mark.parametrize("name", FAMILIES)


def shrinks(plan: Plan) -> dict[int, int]:
    return {offer.job: count(offer.processors) for offer in plan.shrinks}


def expands(plan: Plan) -> dict[int, int]:
    return {offer.job: count(offer.processors) for offer in plan.expands}


def starts(plan: Plan) -> dict[int, int]:
    return {start.job: count(start.processors) for start in plan.starts}


def decide(name: str, view: View) -> Plan:
    plan = load_strategy(name).allocate_processors(view)
    assert plan == load_strategy(name).allocate_processors(view)
    return plan


# ---------------------------------------------------------------- printed values


@families
def test_alone_on_an_idle_machine_it_ends_at_its_maximum(name: str) -> None:
    replay = Replay(FAMILIES[name](), 8)
    replay.run([Job(1, 0, 100, 100, parse_sizes("2-8"), 8, malleable=True)])
    assert replay.history[1][-1] == 8
    assert replay.history[1][0] == (8 if name == "easy-pref" else 2)
    assert replay.ends == {1: 100.0}


@st.composite
def rigid(draw: st.DrawFn) -> list[Job]:
    return [
        Job(
            number,
            draw(st.integers(0, 60)),
            draw(st.integers(1, 60)),
            draw(st.integers(1, 60)),
            Sizes((size := draw(st.integers(1, 8)),)),
            size,
        )
        for number in range(1, draw(st.integers(1, 25)) + 1)
    ]


@families
def test_with_rigid_jobs_only_it_is_easy(name: str) -> None:
    @settings(max_examples=60)
    @given(rigid())
    def same(jobs: list[Job]) -> None:
        ours, plain = Replay(FAMILIES[name](), 8), Replay(fcfs_easy(), 8)
        ours.run(jobs)
        plain.run(jobs)
        assert ours.starts == plain.starts

    same()


@st.composite
def mixed(draw: st.DrawFn) -> list[Job]:
    grammars = ["1", "3", "8", "1-8", "2-8", "4-6", "1-8:pow2", "2-8:x2", "3-8:+3", "{1,2,5}"]
    jobs = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        sizes = parse_sizes(draw(st.sampled_from(grammars)))
        if draw(st.booleans()):
            sizes = sizes.prefer(draw(st.sampled_from(list(sizes.values))))
        requested = draw(st.sampled_from(list(sizes.values)))
        seconds = draw(st.integers(1, 60)), draw(st.integers(1, 60))
        submit, moves = draw(st.integers(0, 60)), draw(st.booleans())
        jobs.append(Job(number, submit, *seconds, sizes, requested, malleable=moves))
    return jobs


@families
def test_plans_fit_the_machine_and_come_to_rest(name: str) -> None:
    # ``Replay`` checks sizes, processors, and that nobody shrinks and grows in one cycle.
    @settings(max_examples=60)
    @given(mixed())
    def fits(jobs: list[Job]) -> None:
        replay = Replay(FAMILIES[name](), 8, FAMILIES[name]())
        replay.run(jobs)
        assert set(replay.ends) == {job.id for job in jobs}

    fits()


# ---------------------------------------------------------------- who gives


def test_min_most_above_its_minimum_gives_first_and_as_much_as_it_can() -> None:
    active = (
        running(1, 0, 4, "2-8"),
        running(2, 4, 8, "2-8"),
        running(3, 12, 8, "2-8"),
    )
    plan = decide("easy-min", make_view(20, (waiting(9, "8"),), active))
    assert shrinks(plan) == {2: 2, 3: 6}
    assert starts(plan) == {9: 8}
    assert plan.starts[0].processors == block(6, 6) | block(18, 2)


def test_min_gives_in_its_grammar_and_what_is_too_much_pays_for_the_next() -> None:
    active = (running(1, 0, 16, "1-16:pow2"),)
    plan = decide("easy-min", make_view(16, (waiting(8, "3"), waiting(9, "5")), active))
    assert shrinks(plan) == {1: 8}
    assert starts(plan) == {8: 3, 9: 5}


def test_avg_the_fullest_gives_one_at_a_time() -> None:
    active = (
        running(1, 0, 8, "2-8"),  # full
        running(2, 8, 5, "2-8"),  # half full
        running(3, 13, 7, "1-13"),  # half full
    )
    plan = decide("easy-avg", make_view(20, (waiting(9, "5"),), active))
    # 8 -> 5 until all are half full; then the first started, then the next.
    assert shrinks(plan) == {1: 4, 2: 4}
    assert starts(plan) == {9: 5}


def test_pref_donors_keep_their_preference_if_that_is_enough() -> None:
    active = (
        running(1, 0, 8, "2-8", prefer=4),
        running(2, 8, 8, "2-8", prefer=6),
    )
    queue = waiting(9, "2-8", prefer=6)
    assert starts(plan := decide("easy-pref", make_view(16, (queue,), active))) == {9: 6}
    assert shrinks(plan) == {1: 4, 2: 6}
    # Seven cannot be had that way: the job gets its minimum, donors keep their preference.
    queue = waiting(9, "2-8", prefer=7)
    assert starts(plan := decide("easy-pref", make_view(16, (queue,), active))) == {9: 2}
    assert shrinks(plan) == {1: 6}
    # Its minimum cannot be had that way either: donors go below, most above first.
    queue = waiting(9, "7-8")
    assert starts(plan := decide("easy-pref", make_view(16, (queue,), active))) == {9: 7}
    assert shrinks(plan) == {1: 2, 2: 7}


@families
def test_all_or_nothing_for_each_job(name: str) -> None:
    active = (running(1, 0, 8, "4-8"),)
    view = make_view(8, (waiting(8, "6"), waiting(9, "3")), active)
    plan = decide(name, view)
    assert starts(plan) == {9: 3}
    assert shrinks(plan) == {1: 5}
    assert told(plan, view) == {8: "waits for at least 6 processors (available to it now: 0)"}


@families
def test_jobs_that_cannot_be_resized_give_nothing(name: str) -> None:
    plan = decide(name, make_view(8, (waiting(9, "2"),), (running(1, 0, 8),)))
    assert (plan.shrinks, plan.starts, plan.expands) == ((), (), ())


@families
def test_what_a_drained_node_would_give_pays_for_nobody(name: str) -> None:
    view = make_view(8, (waiting(9, "2"),), (running(1, 0, 8, "4-8"),))
    drained = View(view.now, view.nodes[:1], view.waiting, (), view.running, NONE, 8)
    plan = decide(name, drained)
    assert (plan.shrinks, plan.starts) == ((), ())


@families
def test_a_job_that_easy_holds_back_gets_no_agreement(name: str) -> None:
    active = (running(1, 0, 4, end=2000.0), running(2, 4, 2, "1-2", end=9000.0))
    queue = (waiting(8, "8", 10.0), waiting(9, "2", 9000.0))
    assert starts(decide(name, make_view(8, queue, active))) == {}


# ---------------------------------------------------------------- who gets


def test_min_grows_first_who_is_least_above_its_minimum() -> None:
    active = (running(1, 0, 4, "2-8"), running(2, 4, 4, "3-6"), running(3, 8, 3, "2-8"))
    assert expands(decide("easy-min", make_view(14, (), active))) == {2: 6, 3: 4}


def test_avg_grows_the_emptiest_step_by_step() -> None:
    active = (running(1, 0, 4, "2-8"), running(2, 4, 2, "2-8"), running(3, 6, 4, "4-5"))
    # Fill 1/3, 0 and 0: jobs 2 and 3 get one, then job 2 and the first of equals, then the next.
    assert expands(decide("easy-avg", make_view(14, (), active))) == {1: 5, 2: 4, 3: 5}


def test_avg_passes_over_a_step_that_is_too_large() -> None:
    active = (running(1, 0, 4, "1-16:pow2"), running(2, 4, 4, "1-6"))
    assert expands(decide("easy-avg", make_view(11, (), active))) == {2: 6}


def test_pref_fills_up_to_preferences_then_to_maxima() -> None:
    active = (
        running(1, 0, 3, "2-8", prefer=4),
        running(2, 3, 2, "2-8", prefer=6),
        running(3, 5, 5, "2-8", prefer=4),
    )
    assert expands(decide("easy-pref", make_view(13, (), active))) == {2: 5}
    assert expands(decide("easy-pref", make_view(16, (), active))) == {1: 5, 2: 6}


@families
def test_who_gives_does_not_grow(name: str) -> None:
    active = (running(1, 0, 16, "4-16:pow2"),)
    plan = decide(name, make_view(18, (waiting(9, "3"),), active))
    assert (shrinks(plan), expands(plan)) == ({1: 8}, {})


# ---------------------------------------------------------------- with the core


@families
def test_a_running_job_makes_room_and_takes_it_back(name: str) -> None:
    rig = Rig({"n1": 8}, load_strategy(name))
    rig.run(1, "2-8")
    rig.settle()
    assert rig.job(1).size == 8
    rig.submit(2, "4")
    assert rig.job(2).reserved
    rig.settle()
    rig.up(2)
    assert (rig.job(1).size, rig.job(2).size) == (4, 4)


@families
def test_a_refusal_ends_the_agreement(name: str) -> None:
    rig = Rig({"n1": 8}, load_strategy(name))
    rig.run(1, "2-8")
    rig.settle()
    rig.sent.clear()
    rig.submit(2, "4")
    rig.answer(1, Verb.REJECT)
    assert not rig.job(2).reserved
    assert rig.job(2).why == "waits for at least 4 processors"


# ---------------------------------------------------------------- is_available


@families
def test_available_now_if_running_jobs_can_make_room(name: str) -> None:
    view = make_view(8, (), (running(1, 0, 8, "2-8", end=2000.0),))
    found = load_strategy(name).is_available(waiting(9, "4-6"), view)
    assert (found.accepted, found.start, found.processors) == (True, 1000.0, 4)
    found = load_strategy(name).is_available(waiting(9, "7", 10.0), view)
    assert (found.accepted, found.start, found.processors) == (True, 2000.0, 7)
    assert not load_strategy(name).is_available(waiting(9, "9"), view).accepted

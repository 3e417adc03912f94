"""``fpsma`` and ``egs`` with both precedences: rounds over clusters, tries, availability."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corekit.replay import Job, Replay
from corekit.rig import Rig
from corekit.views import make_view, running, told, waiting
from pliant.core.model.negotiation import Verb
from pliant.core.model.views_and_plans import Plan, PromisedJob, View, WaitingJob
from pliant.core.values.processors import NONE, block, count
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies import OptionError, known_strategies, load_strategy, strategy_options
from pliant.strategies.policies.koala_precedence import GROWING

NAMES = ["fpsma+pra", "fpsma+pwa", "egs+pra", "egs+pwa"]
every = pytest.mark.parametrize("name", NAMES)
running_first = pytest.mark.parametrize("name", ["fpsma+pra", "egs+pra"])
waiting_first = pytest.mark.parametrize("name", ["fpsma+pwa", "egs+pwa"])

FT, GADGET = "2-32:pow2", "2-46"


def decide(name: str, view: View, **options: object) -> Plan:
    plan = load_strategy(name, options).allocate_processors(view)
    assert plan == load_strategy(name, options).allocate_processors(view)
    return plan


def shrinks(plan: Plan) -> dict[int, int]:
    return {offer.job: count(offer.processors) for offer in plan.shrinks}


def expands(plan: Plan) -> dict[int, int]:
    return {offer.job: count(offer.processors) for offer in plan.expands}


def starts(plan: Plan) -> dict[int, int]:
    return {start.job: count(start.processors) for start in plan.starts}


# ---------------------------------------------------------------- running jobs first


def test_growth_goes_to_the_earliest_in_fpsma_and_to_all_in_egs() -> None:
    active = (running(1, 0, 2, "2-6"), running(2, 2, 2, GADGET), running(3, 4, 2, GADGET))
    view = make_view(13, (), active)
    for precedence in ("pra", "pwa"):
        assert expands(decide(f"fpsma+{precedence}", view)) == {1: 6, 2: 5}
        assert expands(decide(f"egs+{precedence}", view)) == {1: 5, 2: 4, 3: 4}


def test_what_ft_declines_waits_in_egs_unless_it_is_redistributed() -> None:
    active = (running(1, 0, 4, FT), running(2, 4, 2, GADGET))
    view = make_view(12, (), active)
    assert expands(decide("fpsma+pra", view)) == {1: 8, 2: 4}
    assert expands(decide("egs+pra", view)) == {2: 5}
    assert expands(decide("egs+pra", view, redistribute=True)) == {2: 8}


@running_first
def test_running_jobs_grow_before_anybody_starts(name: str) -> None:
    queue = (waiting(8, "2-8"), waiting(9, "1"))
    plan = decide(name, make_view(10, queue, (running(1, 0, 4, GADGET),)))
    assert (expands(plan), starts(plan)) == ({1: 10}, {})


@running_first
def test_rigid_jobs_take_what_is_left_malleable_ones_wait_for_growth(name: str) -> None:
    # Job 2 is being resized: nothing can be offered to it now, and it may grow further.
    moving = replace(running(2, 4, 2, GADGET), resizable=False, target=6)
    active = (running(1, 0, 4, "2-4"), moving)
    plan = decide(name, make_view(12, (waiting(8, "2-8"), waiting(9, "3")), active))
    assert (expands(plan), starts(plan)) == ({}, {9: 3})
    assert plan.reasons == {8: GROWING}


@running_first
def test_malleable_jobs_start_when_all_others_are_at_their_maximum_or_declined(name: str) -> None:
    # Job 1 has its maximum, job 2 cannot use the 3 that are left, job 3 has refused lately.
    refused = replace(running(3, 8, 2, GADGET), resizable=False)
    active = (running(1, 0, 4, "2-4"), running(2, 4, 4, FT), refused)
    plan = decide(name, make_view(13, (waiting(8, "2-8"),), active))
    assert (expands(plan), starts(plan)) == ({}, {8: 2})


@running_first
def test_it_never_shrinks_anybody(name: str) -> None:
    @settings(max_examples=60)
    @given(workloads())
    def never(jobs: list[Job]) -> None:
        def watch(_: View, plan: Plan) -> None:
            assert plan.shrinks == ()

        Replay(load_strategy(name), 8).run(jobs, watch)

    never()


# ---------------------------------------------------------------- waiting jobs first


def test_for_a_job_that_does_not_fit_the_latest_shrink_or_all_do() -> None:
    active = (running(1, 0, 9, GADGET), running(2, 9, 9, GADGET), running(3, 18, 9, GADGET))
    view = make_view(28, (waiting(9, "8"),), active)
    plan = decide("fpsma+pwa", view)
    assert (shrinks(plan), starts(plan)) == ({3: 2}, {9: 8})
    plan = decide("egs+pwa", view)
    assert (shrinks(plan), starts(plan)) == ({1: 7, 2: 7, 3: 6}, {9: 8})
    assert plan.starts[0].processors & block(27, 1), "free ones first"


@waiting_first
def test_ft_gives_more_than_is_needed_and_the_rest_becomes_free(name: str) -> None:
    plan = decide(name, make_view(8, (waiting(9, "3"),), (running(1, 0, 8, FT),)))
    assert (shrinks(plan), starts(plan)) == ({1: 4}, {9: 3})


@waiting_first
def test_if_shrinking_cannot_pay_they_grow(name: str) -> None:
    view = make_view(8, (waiting(9, "8"),), (running(1, 0, 4, GADGET),))
    plan = decide(name, view)
    assert (shrinks(plan), starts(plan), expands(plan)) == ({}, {}, {1: 8})
    assert told(plan, view) == {9: "waits for at least 8 processors (available to it now: 0)"}


@waiting_first
def test_later_jobs_overtake_one_that_cannot_be_placed(name: str) -> None:
    queue = (waiting(7, "8"), waiting(8, "2-8"), waiting(9, "2"))
    plan = decide(name, make_view(8, queue, (running(1, 0, 3),)))
    assert (shrinks(plan), starts(plan), expands(plan)) == ({}, {8: 2, 9: 2}, {})


@waiting_first
def test_one_waiting_job_at_a_time_is_shrunk_for_and_nobody_grows_meanwhile(name: str) -> None:
    queue = (waiting(8, "3"), waiting(9, "4"))
    active = (running(1, 0, 6, "2-8"), running(2, 6, 6, "2-8"))
    plan = decide(name, make_view(14, queue, active))
    assert list(starts(plan)) == [8]
    promise = PromisedJob(waiting(8, "3").id, 8.0, block(10, 2), Sizes((2,)))
    active = (replace(active[0], resizable=False, target=5), active[1])
    plan = decide(name, make_view(16, queue[1:], active, (promise,)))
    assert (shrinks(plan), starts(plan), expands(plan)) == ({}, {9: 4}, {})
    plan = decide(name, make_view(14, (waiting(9, "5"),), active, (promise,)))
    assert (shrinks(plan), starts(plan), expands(plan)) == ({}, {}, {})


@waiting_first
def test_what_a_drained_node_would_give_pays_for_nobody(name: str) -> None:
    view = make_view(8, (waiting(9, "2"),), (running(1, 0, 8, "4-8"),))
    drained = View(view.now, view.nodes[:1], view.waiting, (), view.running, NONE, 8)
    plan = decide(name, drained)
    assert (plan.shrinks, plan.starts) == ((), ())


# ---------------------------------------------------------------- options


@every
@pytest.mark.parametrize(("initial", "size"), [("lo", 2), ("preferred", 4), ("max", 6)])
def test_jobs_start_at_their_minimum_unless_told_otherwise(
    name: str, initial: str, size: int
) -> None:
    view = make_view(6, (waiting(9, "2-8", prefer=4),))
    assert starts(decide(name, view, initial=initial)) == {9: size}
    assert starts(decide(name, view)) == {9: 2}


@every
def test_the_threshold_limits_growth_not_placement(name: str) -> None:
    active = (running(1, 0, 2, GADGET),)
    assert expands(decide(name, make_view(10, (), active), threshold=3)) == {1: 7}
    plan = decide(name, make_view(10, (waiting(8, "3"), waiting(9, "2-4")), active), threshold=8)
    assert (expands(plan), starts(plan)) == ({}, {8: 3, 9: 2})


@every
def test_tries_are_counted_and_too_many_end_the_job(name: str) -> None:
    queue = (waiting(8, "8"), waiting(9, "4"))
    view = make_view(8, queue, (running(1, 0, 5),))
    memory: object = None
    for tries in (1, 2):
        plan = decide(name, replace(view, memory=memory), max_tries=2)
        assert plan.rejects == ()
        memory = json.loads(json.dumps(plan.memory))
        assert memory == ["tries", [[8, tries], [9, tries]]]
    plan = decide(name, replace(view, memory=memory), max_tries=2)
    assert [(each.job, each.reason) for each in plan.rejects] == [
        (8, "placement tries: 3 failed"),
        (9, "placement tries: 3 failed"),
    ]
    assert (plan.memory, plan.reasons) == (("tries", ()), {})
    assert decide(name, view).memory is None


@running_first
def test_a_job_that_is_not_considered_is_not_tried(name: str) -> None:
    moving = replace(running(1, 0, 2, GADGET), resizable=False, target=3)
    plan = decide(name, make_view(8, (waiting(8, "2-8"), waiting(9, "7")), (moving,)), max_tries=9)
    assert plan.memory == ("tries", ((9, 1),))


def test_names_and_options() -> None:
    assert {*NAMES, "fpsma", "egs"} <= set(known_strategies())
    for name in ("fpsma", "egs"):
        view = make_view(8, (waiting(9, "8"),), (running(1, 0, 8, "2-8"),))
        assert decide(name, view) == decide(f"{name}+pra", view)
        options = {option.name: option for option in strategy_options(name)}
        assert options["precedence"].expected == "one of pra, pwa"
        assert all(option.help for option in options.values())
    view = make_view(8, (waiting(9, "6"),), (running(1, 0, 8, "2-8"),))
    assert shrinks(decide("egs", view, precedence="pwa")) == {1: 2}
    with pytest.raises(OptionError, match=r"^strategy egs\+pra: threshold -1 is below 0$"):
        load_strategy("egs+pra", {"threshold": "-1"})
    with pytest.raises(OptionError, match=r"max-tries -1 is below 0"):
        load_strategy("fpsma", {"max-tries": "-1"})


@every
def test_the_cap_limits_what_growth_makes_all_jobs_hold(name: str) -> None:
    active = (running(1, 0, 2, GADGET), running(2, 2, 3))
    assert expands(decide(name, make_view(20, (), active), cap=9)) == {1: 6}
    # Placement is not limited.
    view = make_view(20, (waiting(8, "10"),), active)
    plan = decide(name, view, cap=5)
    assert (expands(plan), starts(plan)) == ({}, {8: 10})


@every
def test_failed_placements_between_two_polls_count_once(name: str) -> None:
    view = make_view(8, (waiting(8, "8"),), (running(1, 0, 5),))
    memory: Any = None
    counted = []
    for now in (100.0, 104.0, 110.0, 115.0, 121.0):
        plan = decide(name, replace(view, now=now, memory=memory), max_tries=9, poll=10)
        memory = json.loads(json.dumps(plan.memory))
        counted.append(memory[1][0][1])
    assert counted == [1, 1, 2, 2, 3]
    # A job that has just come is tried for the first time.
    queue = (*view.waiting, waiting(9, "7"))
    plan = decide(
        name, replace(view, now=122.0, waiting=queue, memory=memory), max_tries=9, poll=10
    )
    assert plan.memory == ("tries", ((8, 3), (9, 1)), 121.0)


# ---------------------------------------------------------------- clusters

TWO = {"delft": 8, "leiden": 8}


@every
def test_a_job_goes_to_the_cluster_with_most_idle_processors(name: str) -> None:
    view = make_view(16, (waiting(8, "3"), waiting(9, "5")), (running(1, 0, 4),), clusters=TWO)
    plan = decide(name, view)
    assert [start.processors for start in plan.starts] == [block(8, 3), block(11, 5)]
    view = replace(view, waiting=(waiting(9, "9"),))
    assert told(decide(name, view), view) == {9: "needs 9 processors, the largest cluster has 8"}


@every
def test_jobs_grow_within_their_cluster(name: str) -> None:
    active = (running(1, 0, 6, GADGET), running(2, 8, 2, GADGET))
    assert expands(decide(name, make_view(16, (), active, clusters=TWO))) == {1: 8, 2: 8}


@waiting_first
def test_the_cluster_that_can_give_enough_shrinks_and_the_other_one_grows(name: str) -> None:
    active = (running(1, 0, 7, "6-8"), running(2, 8, 8, "2-8"))
    plan = decide(name, make_view(16, (waiting(9, "4"),), active, clusters=TWO))
    assert (shrinks(plan), expands(plan)) == ({2: 4}, {1: 8})
    assert plan.starts[0].processors == block(12, 4)


@running_first
def test_a_cluster_whose_jobs_may_grow_takes_no_malleable_job_another_one_does(name: str) -> None:
    moving = replace(running(1, 0, 2, GADGET), resizable=False, target=3)
    active = (moving, running(2, 8, 4))
    plan = decide(name, make_view(16, (waiting(9, "2-8"),), active, clusters=TWO))
    assert plan.starts[0].processors == block(12, 2)


# ---------------------------------------------------------------- whole workloads


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    grammars = ["1", "3", "8", "1-8", "2-8", "4-6", "1-8:pow2", "2-8:x2", "3-8:+3", "{1,2,5}"]
    jobs = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        sizes = parse_sizes(draw(st.sampled_from(grammars)))
        if draw(st.booleans()):
            sizes = sizes.prefer(draw(st.sampled_from(list(sizes.values))))
        seconds = draw(st.integers(1, 60)), draw(st.integers(1, 60))
        requested = draw(st.sampled_from(list(sizes.values)))
        submit, moves = draw(st.integers(0, 60)), draw(st.booleans())
        jobs.append(Job(number, submit, *seconds, sizes, requested, malleable=moves))
    return jobs


@every
def test_plans_fit_the_machine_say_the_same_twice_and_come_to_rest(name: str) -> None:
    # ``Replay`` checks sizes, processors and reasons, sends memory through JSON, asks a twin.
    @settings(max_examples=60)
    @given(workloads(), st.integers(0, 3), st.sampled_from(["lo", "max", "preferred"]))
    def fits(jobs: list[Job], threshold: int, initial: str) -> None:
        options = {"threshold": threshold, "initial": initial, "max-tries": 10_000}
        replay = Replay(load_strategy(name, options), 8, load_strategy(name, options))
        replay.run(jobs)
        assert set(replay.ends) == {job.id for job in jobs}

    fits()


@every
def test_the_size_of_a_round_never_shrinks_some_and_grows_others(name: str) -> None:
    @settings(max_examples=40)
    @given(workloads())
    def one_direction(jobs: list[Job]) -> None:
        def watch(_: View, plan: Plan) -> None:
            assert not (plan.shrinks and plan.expands)

        Replay(load_strategy(name), 8).run(jobs, watch)

    one_direction()


# ---------------------------------------------------------------- with the core


@waiting_first
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
    rig.exit(2)
    rig.settle()
    assert rig.job(1).size == 8


@waiting_first
def test_after_a_refusal_the_next_one_is_asked(name: str) -> None:
    # Without redistribution EGS' bonus goes to a job at its maximum, and stays idle.
    options = {"redistribute": True} if name == "egs+pwa" else {}
    rig = Rig({"n1": 8}, load_strategy(name, options))
    rig.run(1, "2-4")
    rig.settle()
    rig.run(2, "2-4")
    rig.settle()
    assert (rig.job(1).size, rig.job(2).size) == (4, 4)
    rig.sent.clear()
    rig.submit(3, "1")
    rig.answer(2, Verb.REJECT)
    assert rig.job(3).donors == {1}


def test_what_one_declines_the_next_one_in_order_is_offered() -> None:
    rig = Rig({"n1": 8}, load_strategy("fpsma+pra"))
    rig.run(1, "1-6")
    rig.settle()
    rig.run(2, "1-8")
    assert (rig.job(1).size, rig.job(2).size) == (6, 1)
    offer = rig.offer(2)
    assert offer.items[0].quantity == 1


# ---------------------------------------------------------------- is_available


def test_available_now_when_a_round_would_start_it() -> None:
    view = make_view(8, (), (running(1, 0, 8, "2-8", end=2000.0),))
    for name in ("fpsma+pwa", "egs+pwa"):
        found = load_strategy(name).is_available(waiting(9, "4-6"), view)
        assert (found.accepted, found.start, found.processors) == (True, 1000.0, 4)
    for name in ("fpsma+pra", "egs+pra"):
        found = load_strategy(name).is_available(waiting(9, "4-6"), view)
        assert (found.accepted, found.start, found.processors) == (True, 2000.0, 6)


@every
def test_available_by_cluster(name: str) -> None:
    strategy = load_strategy(name)
    active = (running(1, 0, 6, end=3000.0), running(2, 8, 7, end=2000.0))
    view = make_view(16, (), active, clusters=TWO)
    assert strategy.is_available(waiting(9, "9"), view).reason == (
        "needs 9 processors, the largest cluster has 8"
    )
    assert strategy.is_available(waiting(9, "2"), view).start == 1000.0
    assert strategy.is_available(waiting(9, "4"), view).start == 2000.0
    unknown = make_view(16, (), (running(1, 0, 6), running(2, 8, 7)), clusters=TWO)
    found = strategy.is_available(waiting(9, "4"), unknown)
    assert (found.accepted, found.start) == (True, None)


# ---------------------------------------------------------------- components


def parts(number: int, *components: int) -> WaitingJob:
    return replace(waiting(number, str(sum(components))), components=components)


@every
def test_components_go_to_clusters_of_their_own(name: str) -> None:
    view = make_view(16, (parts(9, 6, 5),), (running(1, 0, 2),), clusters=TWO)
    plan = decide(name, view)
    # The largest one goes to leiden, which has 8 idle processors, the other one to delft.
    assert [start.processors for start in plan.starts] == [block(8, 6) | block(2, 5)]
    view = replace(view, waiting=(parts(9, 7, 7),))
    assert decide(name, view).starts == ()


@every
def test_few_clusters_if_the_placement_policy_minimizes_them(name: str) -> None:
    view = make_view(16, (parts(9, 3, 3),), (running(1, 0, 2),), clusters=TWO)
    assert decide(name, view).starts[0].processors == block(8, 3) | block(2, 3)
    assert decide(name, view, placement="cm").starts[0].processors == block(8, 6)
    view = make_view(16, (parts(9, 12),), (running(1, 0, 2),), clusters=TWO)
    plan = decide(name, view, placement="fcm")
    assert plan.starts[0].processors == block(8, 8) | block(2, 4)
    # A job that did not state components stays in one cluster.
    view = make_view(16, (waiting(9, "12"),), clusters=TWO)
    assert decide(name, view, placement="fcm").starts == ()


@every
def test_a_component_that_no_cluster_can_hold_is_named(name: str) -> None:
    view = make_view(16, (parts(9, 9, 2),), clusters=TWO)
    assert told(decide(name, view), view) == {
        9: "needs 11 processors, the largest cluster, for the component of 9, has 8"
    }
    answer = load_strategy(name).is_available(view.waiting[0], view)
    assert answer.accepted is False
    later = make_view(16, (), (running(1, 0, 8),), clusters=TWO)
    answer = load_strategy(name).is_available(parts(9, 6, 6), later)
    assert (answer.accepted, answer.start) == (True, None)


@waiting_first
def test_no_job_shrinks_for_a_job_with_several_components(name: str) -> None:
    active = (running(1, 0, 8, "2-8"), running(2, 8, 8, "2-8"))
    view = make_view(16, (parts(9, 3, 3),), active, clusters=TWO)
    assert shrinks(decide(name, view)) == {}
    assert shrinks(decide(name, replace(view, waiting=(parts(9, 3),)))) != {}

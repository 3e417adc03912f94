"""The view that strategies see, and what becomes of good, bad and stale plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.rig import Rig
from pliant.core import Core, commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.jobs import JobSpec
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.model.views_and_plans import (
    Availability,
    Offer,
    Plan,
    Rejection,
    Start,
    View,
    WaitingJob,
)
from pliant.core.state.views import view
from pliant.core.values.ids import CycleId, JobId, NodeName
from pliant.core.values.processors import NONE, block, count, from_indices
from pliant.strategies import Strategy

J1, J2, J3 = JobId(1), JobId(2), JobId(3)


class Scripted(Strategy):
    """Plans what it was told, once."""

    def __init__(self) -> None:
        self.next = Plan()

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        return Availability(True, view.now, 1)

    def allocate_processors(self, view: View) -> Plan:
        plan, self.next = self.next, Plan(memory=view.memory)
        return plan


@pytest.fixture
def script() -> Scripted:
    return Scripted()


@pytest.fixture
def rig(script: Scripted) -> Rig:
    """Job 1 (1-8) runs on n1 and job 2 (2-4) waits; n2 is free."""
    rig = Rig({"n1": 4, "n2": 4}, script)
    script.next = Plan(starts=(Start(J1, block(0, 4)),))
    rig.run(1, "1-8")
    rig.submit(2, "2-4:x2")
    rig.notes.clear()
    rig.sent.clear()
    return rig


def plan(rig: Rig, script: Scripted, what: Plan) -> list[str]:
    """Have this planned; return what was refused and why."""
    script.next = what
    rig.do(events.NodeRecovered(NodeName("n1")), events.NodeRegistered(NodeName("n3"), 1))
    return [note.text for note in rig.notes if note.kind == "plan.refused"]


def test_the_view_has_the_usable_nodes_and_all_jobs(rig: Rig) -> None:
    rig.submit(3, "40")
    rig.do(events.NodeDrained(NodeName("n2")))
    seen = view(rig.core.state)
    assert [node.name for node in seen.nodes] == ["n1"]
    assert (seen.free, seen.total, seen.promised) == (NONE, 4, ())
    assert [(job.id, str(job.sizes)) for job in seen.waiting] == [(2, "{2,4}")]
    (running,) = seen.running
    assert (running.size, running.held, running.lo) == (4, block(0, 4), 1)
    assert (str(running.sizes), running.resizable) == ("1-4", True)


def test_a_job_that_cannot_be_asked_counts_with_what_it_holds(rig: Rig) -> None:
    rig.ask_for(1, 2)
    (running,) = view(rig.core.state).running
    assert (running.resizable, running.lo) == (False, 4)


def test_a_start_on_free_processors(rig: Rig, script: Scripted) -> None:
    assert not plan(rig, script, Plan(starts=(Start(J2, block(6, 2)),)))
    assert rig.one(commands.Launch).processors == (6, 7)


def test_a_start_on_processors_that_a_shrink_gives(rig: Rig, script: Scripted) -> None:
    what = Plan(shrinks=(Offer(J1, block(0, 1)),), starts=(Start(J2, from_indices([1, 2, 3, 4])),))
    assert not plan(rig, script, what)
    job = rig.job(2)
    assert (job.reserved, set(job.donors)) == (from_indices([1, 2, 3, 4]), {1})
    assert job.reason == "waits for processors of job 1"
    assert rig.free() == from_indices([5, 6, 7, 8])
    seen = view(rig.core.state)
    assert [promise.id for promise in seen.promised] == [2]
    assert seen.running[0].held == from_indices([0])
    rig.shrink_to_go(1)
    rig.finish(1)
    assert (rig.state(2), rig.job(2).ranks) == (JobState.STARTING, (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (Plan(starts=(Start(J1, block(4, 2)),)), "start of job 1: it does not wait"),
        (Plan(starts=(Start(JobId(9), block(4, 2)),)), "start of job 9: it does not wait"),
        (Plan(starts=(Start(J2, block(4, 3)),)), "3 is not one of its sizes {2,4}"),
        (Plan(starts=(Start(J2, NONE),)), "0 is not one of its sizes"),
        (Plan(starts=(Start(J2, block(3, 2)),)), "neither free nor given by this plan"),
        (Plan(starts=(Start(J2, block(40, 2)),)), "neither free nor given by this plan"),
        (Plan(shrinks=(Offer(J2, block(4, 2)),)), "shrink of job 2: the job cannot be resized"),
        (Plan(shrinks=(Offer(JobId(9), NONE),)), "shrink of job 9: the job cannot be resized"),
        (Plan(shrinks=(Offer(J1, NONE),)), "0 is not one of its sizes"),
        (Plan(shrinks=(Offer(J1, block(3, 2)),)), "not a part of its allocation"),
        (Plan(expands=(Offer(J1, block(1, 5)),)), "does not contain its allocation"),
        (Plan(expands=(Offer(J1, block(0, 4)),)), "does not contain its allocation"),
        (Plan(expands=(Offer(J1, block(0, 10)),)), "10 is not one of its sizes 1-8"),
        (
            Plan(expands=(Offer(J1, block(0, 4) | from_indices([20])),)),
            "the processors are not free",
        ),
    ],
)
def test_a_part_that_does_not_fit_is_refused(
    rig: Rig, script: Scripted, what: Plan, why: str
) -> None:
    refused = plan(rig, script, what)
    assert len(refused) == 1
    assert why in refused[0]
    assert refused[0].startswith("test: ")
    assert rig.stage(1) is None
    assert rig.state(2) is JobState.PENDING


def test_one_bad_part_does_not_cost_the_others(rig: Rig, script: Scripted) -> None:
    rig.submit(3, "2")
    what = Plan(
        starts=(Start(J2, block(4, 2)), Start(J3, block(5, 2)), Start(J3, block(6, 2))),
        expands=(Offer(J1, block(0, 5)),),
        reasons={J2: "never read: it started"},
    )
    assert len(plan(rig, script, what)) == 2
    assert (rig.state(2), rig.state(3)) == (JobState.STARTING, JobState.STARTING)


def test_a_job_gets_one_offer(rig: Rig, script: Scripted) -> None:
    what = Plan(
        shrinks=(Offer(J1, block(0, 2)), Offer(J1, block(0, 1))), expands=(Offer(J1, block(0, 6)),)
    )
    assert len(plan(rig, script, what)) == 2
    assert rig.offer(1).items[0].sizes == "2"


def test_a_shrink_that_keeps_everything_is_none(rig: Rig, script: Scripted) -> None:
    assert not plan(rig, script, Plan(shrinks=(Offer(J1, block(0, 4)),)))
    assert rig.stage(1) is None


def test_promised_processors_cannot_be_promised_twice(rig: Rig, script: Scripted) -> None:
    rig.submit(3, "2")
    what = Plan(
        shrinks=(Offer(J1, block(0, 2)),),
        starts=(Start(J2, from_indices([2, 3])), Start(J3, from_indices([3, 4]))),
    )
    assert len(plan(rig, script, what)) == 1
    assert count(rig.job(2).reserved) == 2


def test_processors_of_a_drained_node_are_nobodys_promise(rig: Rig, script: Scripted) -> None:
    rig.do(events.NodeDrained(NodeName("n1")))
    what = Plan(shrinks=(Offer(J1, block(0, 2)),), starts=(Start(J2, from_indices([2, 3])),))
    rig.notes.clear()
    script.next = what
    rig.do(events.NodeRegistered(NodeName("n3"), 1))
    assert [n.kind for n in rig.notes if n.job is None] == ["node.registered", "plan.refused"]


def test_a_strategy_may_reject_a_job(rig: Rig, script: Scripted) -> None:
    plan(rig, script, Plan(rejects=(Rejection(J2, "too dear"), Rejection(J1, "runs already"))))
    assert (rig.state(2), rig.job(2).reason) == (JobState.REJECTED, "too dear")
    assert rig.state(1) is JobState.RUNNING
    assert rig.one(commands.Ended).job == 2


def test_reasons_reach_those_who_wait(rig: Rig, script: Scripted) -> None:
    plan(rig, script, Plan(reasons={J2: "after the storm", J1: "x", JobId(9): "y"}))
    assert rig.job(2).reason == "after the storm"
    assert rig.job(1).reason != "x"


def test_who_is_not_named_is_behind(rig: Rig, script: Scripted) -> None:
    for number in (3, 4):
        rig.submit(number, "2")

    def told(what: Plan) -> list[str]:
        plan(rig, script, what)
        return [rig.job(number).reason for number in (2, 3, 4)]

    assert told(Plan(reasons={J2: "first"}, behind="behind")) == ["first", "behind", "behind"]
    assert told(Plan(reasons={J3: "first"}, behind="behind")) == ["behind", "first", "behind"]
    # What the core itself told in the meantime holds until the next plan.
    rig.do(events.JobHeld(J3))
    rig.do(events.JobReleased(J3))
    assert told(Plan(behind="behind")) == ["behind"] * 3
    last = Plan(reasons={JobId(4): "last"}, behind="after 1")
    assert told(last) == ["after 1", "after 1", "last"]
    assert told(Plan()) == ["after 1", "after 1", "last"]


def test_a_promise_that_is_broken_explains_nothing_any_more(rig: Rig, script: Scripted) -> None:
    rig.submit(3, "2")
    start = Start(J2, from_indices([3, 4]))
    plan(rig, script, Plan(shrinks=(Offer(J1, block(0, 3)),), starts=(start,), behind="behind"))
    assert rig.job(2).reason == "waits for processors of job 1"
    rig.answer(1, Verb.REJECT)
    plan(rig, script, Plan(behind="behind"))
    assert rig.job(2).reason == "behind"


def test_memory_is_kept_and_stored_when_it_changed() -> None:
    core = Core()
    (_, ask) = core.handle(events.NodeRegistered(NodeName("n1"), 2), 1.0)
    assert isinstance(ask, commands.RunStrategy)
    (store,) = core.handle(events.PlanReady(ask.cycle, Plan(memory={"policy": "sjf"})), 1.0)
    assert isinstance(store, commands.Store)
    assert store.memory
    assert core.memory == {"policy": "sjf"}
    (_, again) = core.handle(events.NodeSuspected(NodeName("n1")), 2.0)
    assert isinstance(again, commands.RunStrategy)
    assert again.view.memory == {"policy": "sjf"}
    assert core.handle(events.PlanReady(again.cycle, Plan(memory={"policy": "sjf"})), 2.0) == []


def test_a_stale_plan_gives_way() -> None:
    rig = Rig({"n1": 2})
    spec = replace(_spec(rig), id=J2)
    first = rig.core.handle(events.JobSubmitted(spec), rig.now)[-1]
    assert isinstance(first, commands.RunStrategy)
    second = rig.core.handle(events.NodeDrained(NodeName("n1")), rig.now)[-1]
    assert isinstance(second, commands.RunStrategy)
    start = Plan(starts=(Start(J2, block(0, 1)),))
    assert rig.core.handle(events.PlanReady(first.cycle, start), rig.now) == []
    made = rig.core.handle(events.PlanReady(second.cycle, start), rig.now)
    assert not [command for command in made if isinstance(command, commands.Launch)]
    assert rig.core.handle(events.PlanReady(CycleId(99), start), rig.now) == []


def test_a_plan_and_a_change_of_the_same_instant() -> None:
    rig = Rig({"n1": 2})
    ask = rig.core.handle(events.JobSubmitted(replace(_spec(rig), id=J2)), rig.now)[-1]
    assert isinstance(ask, commands.RunStrategy)
    ready = events.PlanReady(ask.cycle, Plan(starts=(Start(J2, block(0, 1)),)))
    made = rig.core.handle_all((events.NodeDrained(NodeName("n1")), ready), rig.now)
    assert isinstance(made[0], commands.Store)
    assert isinstance(made[-1], commands.RunStrategy)
    assert not [command for command in made if isinstance(command, commands.Launch)]


def test_a_strategy_that_fails_is_asked_again() -> None:
    rig = Rig({"n1": 2})
    rig.core.handle(events.JobSubmitted(replace(_spec(rig), id=J2)), rig.now)
    timers = []
    for _ in range(8):
        _, command = rig.core.handle(events.PlanFailed(CycleId(1), "boom"), rig.now)
        assert isinstance(command, commands.SetTimer)
        timers.append(command)
    assert [each.at - rig.now for each in timers] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert "it is asked again soon" in "".join(explain(rig.core, J2, rig.now))
    rig.now = timers[-1].at
    order = rig.core.handle(events.TimerFired(timers[-1].timer), rig.now)[-1]
    assert isinstance(order, commands.RunStrategy)
    rig.core.handle(events.PlanReady(order.cycle, Plan()), rig.now)
    assert "it is asked again soon" not in "".join(explain(rig.core, J2, rig.now))


def test_a_strategy_that_fails_costs_one_cycle(rig: Rig) -> None:
    rig.core.strategy = "fcfs"
    made = rig.core.handle(events.PlanFailed(CycleId(1), "boom"), rig.now)
    store = made[0]
    assert isinstance(store, commands.Store)
    assert store.notes[0].text == "fcfs: boom"
    assert isinstance(made[-1], commands.RunStrategy)
    assert rig.core.strategy == "fcfs"


def _spec(rig: Rig) -> JobSpec:
    rig.submit(1, "9", held=True)
    return rig.job(1).spec


def test_the_view_says_where_an_open_resize_leads(rig: Rig) -> None:
    def target() -> tuple[int, int]:
        (running,) = view(rig.core.state).running
        return running.size, running.target

    assert target() == (4, 4)
    rig.ask_for(1, 2)
    assert target() == (4, 2)
    rig.shrink_to_go(1)
    assert target() == (4, 2)
    rig.wait(rig.limits.safe_point_timeout_s)
    assert rig.stage(1) is ResizeStage.WITHDRAWING
    assert target() == (4, 4)


def test_a_wake_up_that_a_later_plan_does_not_want_is_forgotten(rig: Rig, script: Scripted) -> None:
    plan(rig, script, Plan(wake_at=rig.now + 50))
    plan(rig, script, Plan())
    rig.plans.clear()
    rig.wait(60)
    assert rig.plans == []


def test_a_wake_up_that_is_put_off_fires_once(rig: Rig, script: Scripted) -> None:
    plan(rig, script, Plan(wake_at=rig.now + 50))
    plan(rig, script, Plan(wake_at=rig.now + 80))
    rig.plans.clear()
    rig.wait(60)
    assert rig.plans == []
    rig.wait(60)
    assert len(rig.plans) == 1


def test_a_wake_up_that_is_wanted_again_fires(rig: Rig, script: Scripted) -> None:
    at = rig.now + 50
    for wanted in (at, None, at):
        plan(rig, script, Plan(wake_at=wanted))
    rig.plans.clear()
    rig.wait(60)
    assert len(rig.plans) == 1

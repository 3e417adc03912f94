"""Applications that ask for other sizes: every answer, in every stage of a resize."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.model.size_request import RequestOutcome
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.values.ids import FIRST_START, JobId, NodeName


def rig(*, others: str = "4", on_request: bool = False, slots: int = 8) -> Rig:
    """Job 1 (1-8) runs on what job 2 leaves; nobody moves it without being asked."""
    made = Rig({"n1": slots}, "fcfs")
    made.submit(2, others)
    made.up(2)
    if "-" in others:
        made.register(2, others)
    made.submit(1, "1-8")
    made.up(1)
    job = made.job(1)
    made.do(
        events.ApplicationRegistered(
            job.id, job.run, job.epoch, job.ranks, evolving_only=on_request
        )
    )
    made.sent.clear()
    return made


def answer(made: Rig) -> tuple[int, RequestOutcome, int]:
    """The only answer that was sent."""
    found = made.one(commands.AnswerRequest)
    return found.number, found.outcome, found.size


def end_of(made: Rig, number: int) -> None:
    """A job ends by itself."""
    made.exit(number)


def test_a_request_waits_for_processors_and_is_granted() -> None:
    made = rig(on_request=True)
    assert made.job(1).size == 4
    made.request(1, "6")
    assert made.take(commands.AnswerRequest) == []
    assert made.core.state.requests
    end_of(made, 2)
    assert made.resize(1).cause == "request 1 of the application"
    made.grow_to_go(1)
    made.finish(1)
    assert answer(made) == (1, RequestOutcome.GRANTED, 6)
    assert made.job(1).request is None
    assert made.job(1).size == 6
    kinds = made.kinds(1)
    assert kinds.index("request.received") < kinds.index("request.granted")


def test_part_of_a_request_is_granted_from_what_is_idle() -> None:
    made = rig(others="3", on_request=True)
    made.submit(3, "1")  # takes what job 1 does not: nothing
    assert made.job(1).size == 5
    made.request(1, "2")  # a release first
    made.finish(1)
    assert answer(made) == (1, RequestOutcome.GRANTED, 2)
    made.take(commands.SendOffer)
    made.up(3)  # started on what came free: 2 of the 3 are idle now
    made.request(1, "3-8", 2)
    made.grow_to_go(1)
    made.finish(1)
    assert answer(made) == (2, RequestOutcome.PARTLY, 4)


def test_donors_shrink_for_a_request_and_nobody_else_gets_it() -> None:
    made = rig(others="1-4", on_request=True)
    made.request(1, "6-8", prefer=6)
    made.submit(3, "1")  # would start on whatever is free
    made.answer(2, Verb.ACCEPT)
    assert made.stage(2) is ResizeStage.AGREED
    made.answer(1, Verb.ACCEPT)
    assert (made.stage(1), made.stage(2)) == (ResizeStage.AGREED, ResizeStage.GO)
    made.finish(2)
    assert made.state(3) is JobState.PENDING
    made.ready(1)
    made.finish(1)
    assert answer(made) == (1, RequestOutcome.GRANTED, 6)
    assert made.job(2).size == 2


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [("9", "none of 9 is one of its sizes 1-8"), ("7-8", "the cluster has 6 processors")],
)
def test_what_can_never_be_met_is_refused_at_once(sizes: str, reason: str) -> None:
    made = rig(slots=6)
    made.request(1, sizes)
    found = made.one(commands.AnswerRequest)
    assert found.outcome is RequestOutcome.REFUSED
    assert reason in found.reason
    assert "request.refused" in made.kinds(1)


def test_a_job_that_has_not_registered_is_refused() -> None:
    made = Rig({"n1": 8}, "fcfs")
    made.submit(1, "1-4")
    made.up(1)
    made.request(1, "6")
    assert answer(made) == (1, RequestOutcome.REFUSED, 4)


def test_what_it_has_already_is_granted_at_once() -> None:
    made = rig()
    made.request(1, "2-4")
    assert answer(made) == (1, RequestOutcome.GRANTED, 4)


def test_a_release_is_a_talk_of_the_application_that_is_agreed_on_at_once() -> None:
    made = rig()
    made.request(1, "1-2")
    word = made.offer(1)
    assert (word.verb, word.items[0].sizes) == (Verb.ACCEPT, "2")
    assert made.stage(1) is ResizeStage.GO
    made.finish(1)
    assert answer(made) == (1, RequestOutcome.GRANTED, 2)
    assert made.job(1).ranks == made.job(1).ranks[:2]


def test_a_release_that_was_rolled_back_is_tried_again_later() -> None:
    made = rig()
    made.request(1, "2")
    made.begin(1)
    made.decide(1, committed=False, stage="move")
    assert made.stage(1) is None
    assert made.job(1).request is not None
    made.wait(made.limits.quiet_s + 1)
    made.finish(1)
    assert answer(made) == (1, RequestOutcome.GRANTED, 2)


def test_a_request_expires_at_its_deadline() -> None:
    made = rig()
    made.request(1, "6", within=20.0)
    made.wait(19.0)
    assert made.job(1).request is not None
    made.wait(2.0)
    assert answer(made) == (1, RequestOutcome.EXPIRED, 4)
    assert "request.expired" in made.kinds(1)


def test_now_or_never_is_planned_for_once() -> None:
    made = rig()
    made.request(1, "6", within=0.0)
    made.wait(0.0)
    assert answer(made) == (1, RequestOutcome.EXPIRED, 4)


def test_a_later_request_takes_the_place_of_the_open_one() -> None:
    made = rig()
    made.request(1, "8")
    made.request(1, "6", 2)
    assert answer(made) == (1, RequestOutcome.CANCELLED, 4)
    request = made.job(1).request
    assert request is not None
    assert (request.number, request.wanted) == (2, 6)
    made.request(1, "8", 1)  # the first one again, late
    assert answer(made) == (1, RequestOutcome.CANCELLED, 4)
    assert made.job(1).request is request


def test_an_answer_is_given_again_to_who_asks_again() -> None:
    made = rig()
    made.request(1, "2-4")
    assert answer(made) == answer_again(made)
    made.do(events.RequestCancelled(JobId(1), 1, 1))
    assert answer(made) == (1, RequestOutcome.GRANTED, 4)


def answer_again(made: Rig) -> tuple[int, RequestOutcome, int]:
    made.request(1, "2-4")
    return answer(made)


# ---------------------------------------------------------------- in each stage of a resize


def growing(stage: str) -> Rig:
    """Job 1 grows from 4 to 6 for its request, as far as this stage."""
    made = rig(on_request=True)
    made.request(1, "6", within=20.0)
    end_of(made, 2)
    steps: list[tuple[str, Callable[[], object]]] = [
        ("talk", lambda: None),
        ("prepare", lambda: made.answer(1, Verb.ACCEPT)),
        ("go", lambda: made.ready(1)),
        ("begun", lambda: made.begin(1)),
    ]
    for name, step in steps:
        step()
        if name == stage:
            break
    assert made.stage(1) == stage
    return made


@pytest.mark.parametrize(
    ("stage", "ends"), [("talk", True), ("prepare", True), ("go", False), ("begun", False)]
)
def test_cancelled_while_it_is_being_granted(stage: str, ends: bool) -> None:
    made = growing(stage)
    made.do(events.RequestCancelled(JobId(1), 1, 1))
    assert answer(made) == (1, RequestOutcome.CANCELLED, 4)
    assert (made.stage(1) is None) is ends
    if not ends:
        made.finish(1) if stage == "go" else made.decide(1)
        assert made.job(1).size == 6


@pytest.mark.parametrize("stage", ["talk", "prepare", "go", "begun"])
def test_a_deadline_does_not_stop_what_was_agreed_on(stage: str) -> None:
    made = growing(stage)
    made.do(events.TimerFired(timer(made)))
    assert made.take(commands.AnswerRequest) == []  # it fires too early, and does nothing
    made.now += 20.0
    made.do(events.TimerFired(timer(made)))
    if stage == "talk":
        assert answer(made) == (1, RequestOutcome.EXPIRED, 4)
        assert made.stage(1) is None
        return
    assert made.take(commands.AnswerRequest) == []
    if stage == "prepare":
        made.ready(1)
    made.decide(1)
    assert answer(made) == (1, RequestOutcome.GRANTED, 6)


def timer(made: Rig) -> Timer:
    return Timer(TimerKind.REQUEST, JobId(1), made.job(1).run)


def test_overdue_and_rolled_back_is_expired() -> None:
    made = growing("begun")
    made.now += 20.0
    made.do(events.TimerFired(timer(made)))
    made.decide(1, committed=False, stage="move")
    assert answer(made) == (1, RequestOutcome.EXPIRED, 4)


@pytest.mark.parametrize("stage", ["talk", "prepare", "go", "begun"])
def test_replaced_while_it_is_being_granted(stage: str) -> None:
    made = growing(stage)
    joining_ranks = made.resize(1).joining
    made.request(1, "8", 2)
    assert answer(made) == (1, RequestOutcome.CANCELLED, 4)
    if stage == "prepare":
        made.exit(1, *joining_ranks, signal=15)
    if stage in ("go", "begun"):
        made.decide(1)
    made.sent.clear()
    made.settle()
    assert answer(made) == (2, RequestOutcome.GRANTED, 8)


@pytest.mark.parametrize("stage", ["talk", "prepare", "go", "begun"])
@pytest.mark.parametrize(
    ("sizes", "outcome"), [("6", RequestOutcome.GRANTED), ("6-8", RequestOutcome.PARTLY)]
)
def test_a_later_request_keeps_the_growth_to_a_size_that_it_names(
    stage: str, sizes: str, outcome: RequestOutcome
) -> None:
    made = growing(stage)
    resize = made.resize(1)
    made.request(1, sizes, 2)
    assert answer(made) == (1, RequestOutcome.CANCELLED, 4)
    assert made.take(commands.SendWithdraw) == []
    assert made.take(commands.Kill) == []
    assert made.resize(1) is resize
    assert made.stage(1) == stage
    if stage == "talk":
        made.answer(1, Verb.ACCEPT)
    if stage in ("talk", "prepare"):
        made.ready(1)
    made.decide(1)
    assert answer(made) == (2, outcome, 6)


def test_a_later_request_for_less_ends_the_growth() -> None:
    made = growing("prepare")
    made.request(1, "2", 2)
    assert answer(made) == (1, RequestOutcome.CANCELLED, 4)
    assert [withdrawn.job for withdrawn in made.take(commands.SendWithdraw)] == [JobId(1)]


def test_a_request_without_a_deadline_is_answered_at_last() -> None:
    made = rig()
    made.request(1, "6")
    made.wait(made.limits.request_timeout_s - 1)
    assert made.job(1).request is not None
    made.wait(2.0)
    found = made.one(commands.AnswerRequest)
    assert (found.outcome, found.size) == (RequestOutcome.EXPIRED, 4)
    assert "300 s" in found.reason
    assert made.core.state.requests == {}


def test_a_deadline_of_its_own_may_be_later_than_the_servers() -> None:
    made = rig()
    made.request(1, "6", within=1000.0)
    made.wait(900.0)
    assert made.job(1).request is not None


@pytest.mark.parametrize("stage", ["talk", "prepare", "go", "begun"])
def test_the_server_restarts_while_it_is_being_granted(stage: str) -> None:
    made = growing(stage)
    decided = stage in ("go", "begun")
    resize = made.resize(1).id
    made.restart()
    made.do(events.NodeRegistered(NodeName("n1"), 8, worlds=(world(made),)))
    made.register(1, pending=resize if decided else 0)
    if decided:
        made.decide(1)
    made.settle()
    assert answer(made) == (1, RequestOutcome.GRANTED, 6)


def world(made: Rig) -> events.LiveWorld:
    job = made.job(1)
    return events.LiveWorld(job.id, job.run, FIRST_START, job.occupied, ready=True)


@pytest.mark.parametrize("stage", ["talk", "prepare", "go", "begun"])
def test_the_job_ends_while_it_asks(stage: str) -> None:
    made = growing(stage)
    made.do(events.JobCancelled(JobId(1)))
    assert made.take(commands.AnswerRequest) == []
    assert made.core.state.requests == {}
    assert "request.cancelled" in made.kinds(1)
    made.exit(1)
    assert made.state(1) is JobState.CANCELLED


@pytest.mark.parametrize("stage", ["talk", "prepare", "go", "begun"])
def test_its_node_is_lost_while_it_asks(stage: str) -> None:
    made = growing(stage)
    made.do(events.NodeLost(NodeName("n1"), "silent"))
    assert made.core.state.requests == {}
    assert made.state(1) is JobState.NODE_FAIL


def test_the_application_refuses_what_it_asked_for() -> None:
    made = growing("talk")
    made.answer(1, Verb.REJECT)
    assert made.job(1).request is not None
    made.wait(made.limits.quiet_s + 1)
    assert answer(made) == (1, RequestOutcome.EXPIRED, 4)


def test_a_request_waits_for_the_end_of_an_open_resize() -> None:
    made = rig()
    made.ask_for(1, 2)
    made.shrink_to_go(1)
    made.request(1, "1")
    assert made.resize(1).after == made.job(1).ranks[:2]
    made.finish(1)
    assert answer(made) == (1, RequestOutcome.REFUSED, 2)  # an operator fixed its size


def test_what_grew_for_another_reason_before_is_no_part() -> None:
    made = rig(others="2", slots=10)
    made.do(events.ResizeRequested(JobId(1), 2))
    made.shrink_to_go(1)
    made.finish(1)
    made.do(events.ResizeRequested(JobId(1), 0))
    assert made.job(1).size == 2
    made.do(events.ResizeRequested(JobId(1), 4))
    made.answer(1, Verb.ACCEPT)
    made.job(1).size_fixed_by_operator = False
    made.request(1, "4-8")
    made.ready(1)
    made.finish(1)
    made.take(commands.AnswerRequest)
    request = made.job(1).request
    assert request is not None
    assert request.base == 4


def test_an_operator_fixes_the_size_of_who_asks() -> None:
    made = rig()
    made.request(1, "6")
    made.ask_for(1, 2)
    made.shrink_to_go(1)
    made.finish(1)
    assert answer(made) == (1, RequestOutcome.REFUSED, 2)


def test_an_open_request_outlives_its_session_and_the_server() -> None:
    made = rig()
    made.request(1, "6", within=50.0)
    made.do(events.ApplicationLeft(JobId(1), 1))
    before = made.job(1).request
    made.restart()
    assert made.job(1).request == before
    made.wait(51.0)
    assert answer(made) == (1, RequestOutcome.EXPIRED, 4)


def test_it_is_told_what_a_job_asks_for() -> None:
    made = rig(on_request=True)
    made.request(1, "6", within=50.0)
    made.wait(10.0)
    said = explain(made.core, JobId(1), made.now)
    assert (
        "request 1: its program asked 10.0 s ago for 6 processors (said the test): "
        "waits until enough processors are available, for 40 s more"
    ) in said
    assert "its size changes only when its program asks for that" in said


def test_a_view_shows_who_asks() -> None:
    made = rig(on_request=True)
    made.request(1, "2-20", prefer=8)
    made.core.strategy = "other"
    (order,) = (
        c for c in made.core.handle_all((), made.now) if isinstance(c, commands.RunStrategy)
    )
    assert order.view.requests == (1,)
    job = next(job for job in order.view.running if job.id == 1)
    assert job.request is not None
    assert (str(job.request.sizes), job.request.since, job.request.ready) == ("5-8", 1000.0, True)
    assert not job.resizable


def test_a_request_that_waited_for_a_talk_is_looked_at_when_a_restart_ends_that() -> None:
    made = rig(others="2")
    made.ask_for(1, 4)
    made.request(1, "8")
    request = made.job(1).request
    assert request is not None
    assert request.base is None
    made.restart()
    assert made.job(1).resize is None
    answered = made.job(1).answered
    assert answered is not None
    assert (answered.outcome, answered.reason) == (
        RequestOutcome.REFUSED,
        "an operator fixed its size",
    )


def test_a_request_outlives_a_drain() -> None:
    made = rig(others="2", slots=4)
    made.do(events.NodeRegistered(NodeName("n2"), 4))
    made.do(events.NodeDrained(NodeName("n2")))
    made.request(1, "6")
    assert made.job(1).request is not None
    made.do(events.NodeResumed(NodeName("n2")))
    assert made.job(1).request is not None
    made.request(1, "9", 2)
    outcomes = [said.outcome for said in made.take(commands.AnswerRequest)]
    assert outcomes == [RequestOutcome.CANCELLED, RequestOutcome.REFUSED]

"""Named resources: how they are written, who gets them, and what a talk says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.rig import Rig
from pliant.core import events
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Direction, ItemStatus, Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.model.views_and_plans import Plan, Start, View
from pliant.core.model.wait_reasons import WaitCode
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import count
from pliant.core.values.resources import Need, impossible, parse_needs
from pliant.strategies import Strategy, known_strategies


@pytest.mark.parametrize("text", ["lic=1", "lic=3/proc", "a.b-c_4=1000000"])
def test_a_need_is_written_as_it_is_read(text: str) -> None:
    assert [str(need) for need in parse_needs([text])] == [text]


@pytest.mark.parametrize(
    "texts", [[""], ["lic"], ["lic=0"], ["lic=-1"], ["lic=1/node"], ["4=4"], ["lic=1", "lic=2"]]
)
def test_what_is_no_need(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"named twice|write NAME=AMOUNT"):
        parse_needs(texts)


def test_what_a_cluster_can_never_give() -> None:
    per_processor = (Need("lic", 2, per_processor=True),)
    assert impossible(per_processor, 2, {"lic": 4}) == ""
    assert "the cluster has 4; ask for at most 4" in impossible(per_processor, 3, {"lic": 4})
    assert "it has gpu, tok" in impossible(per_processor, 1, {"tok": 1, "gpu": 1})


@pytest.mark.parametrize("strategy", sorted(known_strategies()))
def test_no_strategy_starts_more_jobs_than_there_are_licenses(strategy: str) -> None:
    rig = Rig({"n1": 8}, strategy, resources={"lic": 2})
    for number in range(1, 5):
        rig.submit(number, "1", estimate_s=10.0, resources=["lic=1"])
    rig.submit(5, "1", estimate_s=10.0)
    running = [n for n in range(1, 5) if rig.state(n) is JobState.STARTING]
    assert len(running) == 2
    assert rig.state(5) is JobState.STARTING, "a job that needs none does not wait"
    rig.up(running[0])
    rig.exit(running[0])
    assert [rig.state(n) for n in range(1, 5)].count(JobState.PENDING) == 1


def test_the_first_job_in_the_queue_gets_a_released_resource() -> None:
    rig = Rig({"n1": 8}, "fcfs+easy", resources={"lic": 3})
    rig.submit(1, "1", resources=["lic=2"])
    rig.submit(2, "1", resources=["lic=3"])
    rig.submit(3, "1", resources=["lic=1"])
    wait = rig.job(2).wait
    assert wait is not None
    assert wait.code is WaitCode.RESOURCE
    assert rig.job(2).why == "waits for 3 of resource lic"
    assert rig.job(3).why == "waits for 1 of resource lic", "it is given in order of arrival"
    rig.up(1)
    rig.exit(1)
    assert rig.state(2) is JobState.STARTING
    assert rig.state(3) is JobState.PENDING


def test_nothing_is_kept_for_a_job_that_the_machine_has_become_too_small_for() -> None:
    rig = Rig({"n1": 8, "n2": 8}, "fcfs+easy", resources={"lic": 3})
    rig.run(9, "16")
    rig.submit(1, "12", resources=["lic=3"])
    rig.do(events.NodeDrained(NodeName("n2")))
    rig.exit(9)
    rig.submit(2, "1", resources=["lic=1"])
    rig.submit(3, "1", resources=["lic=1"])
    states = [rig.state(n) for n in (1, 2, 3)]
    assert states == [JobState.PENDING, JobState.STARTING, JobState.STARTING]


def test_it_is_kept_for_the_job_for_which_others_are_suspended() -> None:
    rig = Rig({"n1": 8}, "priority+easy+preempt", resources={"lic": 2})
    rig.run(1, "6")
    rig.run(9, "1", priority=9)
    rig.wait(60.0)
    rig.submit(2, "6", priority=5, estimate_s=50.0, resources=["lic=2"])
    rig.submit(3, "1", resources=["lic=1"])
    rig.submit(4, "1", estimate_s=1.0)
    states = [rig.state(n) for n in (1, 2, 3, 4)]
    assert states == [JobState.ADAPTING, *[JobState.PENDING] * 2, JobState.STARTING]
    rig.restart()
    rig.register(1)
    saving = rig.job(1).saving
    assert saving is not None
    rig.do(events.NodeRegistered(NodeName("n1"), 8))
    rig.do(events.SaveReported(JobId(1), 1, saving.number, SaveProgress.SAVED, iteration=1))
    assert rig.state(3) is JobState.PENDING
    rig.exit(1)
    assert (rig.state(2), rig.state(3)) == (JobState.STARTING, JobState.PENDING)


def test_two_jobs_of_one_plan_do_not_get_the_same() -> None:
    rig = Rig({"n1": 4}, "fcfs", resources={"lic": 1})
    rig.submit(1, "4")
    rig.submit(2, "1", resources=["lic=1"])
    rig.submit(3, "1", resources=["lic=1"])
    rig.submit(4, "1")
    rig.up(1)
    rig.exit(1)
    assert [rig.state(n) for n in (2, 3, 4)] == [
        JobState.STARTING,
        JobState.PENDING,
        JobState.STARTING,
    ]
    assert "plan.refused" not in rig.kinds()


class StartsAll(Strategy):
    """Starts what it is told to, whatever the view says."""

    def allocate_processors(self, view: View) -> Plan:
        return Plan(starts=tuple(Start(job, 1 << 2 + job) for job in (JobId(1), JobId(2))))


def test_a_strategy_that_ignores_its_view_is_refused_once() -> None:
    rig = Rig({"n1": 8}, StartsAll(), resources={"lic": 1})
    rig.submit(1, "1", resources=["lic=1"])
    rig.notes.clear()
    rig.submit(2, "1", resources=["lic=1"])
    assert rig.state(2) is JobState.PENDING
    told = [note.text for note in rig.notes if note.kind == "plan.refused"]
    assert [text for text in told if "too little of resource lic is free" in text][1:] == []
    assert any("too little of resource lic is free" in text for text in told)


def test_a_restart_forgets_nothing() -> None:
    rig = Rig({"n1": 4}, "fcfs", resources={"lic": 1})
    rig.submit(1, "1", resources=["lic=1"])
    rig.submit(2, "1", resources=["lic=1"])
    rig.up(1)
    rig.restart()
    assert rig.job(2).spec.resources == (Need("lic", 1),)
    assert rig.state(2) is JobState.PENDING
    rig.exit(1)
    rig.do(events.NodeRegistered(NodeName("n1"), 4))
    assert rig.state(2) is JobState.STARTING


def malleable(resources: dict[str, int], needs: list[str]) -> Rig:
    """Job 1 runs on processors 0 to 3 of 8, which another job has left."""
    rig = Rig({"n1": 8}, "equipartition", resources=resources)
    rig.run(9, "4")
    rig.run(1, "1-8", resources=needs)
    return rig


def test_growth_is_limited_and_the_offer_says_what_comes_with_it() -> None:
    rig = malleable({"lic": 6}, ["lic=1/proc"])
    assert rig.job(1).size == 4
    rig.exit(9)
    assert count(rig.free()) == 2, "six processors and not eight: there are six licenses"
    offer = rig.offer(1)
    processors, licenses = offer.items
    assert (processors.sizes, processors.quantity) == ("6", 2)
    assert (licenses.kind, licenses.quantity) == ("resource:lic", 2)
    assert licenses.direction is Direction.RECEIVE
    rig.answer(1, Verb.ACCEPT, offer)
    assert rig.stage(1) is ResizeStage.PREPARE


def test_a_counter_offer_may_name_only_how_much_of_it_would_do() -> None:
    rig = malleable({"lic": 16}, ["lic=2/proc"])
    rig.exit(9)
    offer = rig.offer(1)
    licenses = offer.items[1]
    assert licenses.quantity == 8
    rig.answer(1, Verb.COUNTER, replace(offer, items=(replace(licenses, quantity=5),)))
    agreed = rig.offer(1)
    assert agreed.verb is Verb.ACCEPT
    assert [(item.kind, item.quantity) for item in agreed.items] == [
        ("processors", 2),
        ("resource:lic", 4),
    ]
    assert len(rig.resize(1).after) == 6


def test_processors_without_what_comes_with_them_are_not_accepted() -> None:
    rig = malleable({"lic": 8}, ["lic=1/proc"])
    rig.exit(9)
    offer = rig.offer(1)
    statuses = (ItemStatus.ACCEPTED, ItemStatus.REJECTED)
    items = tuple(
        replace(item, status=status) for item, status in zip(offer.items, statuses, strict=True)
    )
    rig.answer(1, Verb.ACCEPT, replace(offer, items=items))
    assert rig.job(1).resize is None
    assert rig.job(1).reason == "refused: it accepts without resource:lic"


def test_a_shrink_gives_it_back_when_the_processes_are_gone() -> None:
    rig = Rig({"n1": 8}, "equipartition", resources={"lic": 8})
    rig.run(1, "1-8", resources=["lic=1/proc"])
    rig.submit(2, "4")
    offer = rig.offer(1)
    assert (offer.items[1].quantity, offer.items[1].direction) == (4, Direction.RELEASE)
    rig.submit(3, "1", resources=["lic=2"])
    rig.answer(1, Verb.ACCEPT, offer)
    rig.begin(1)
    rig.decide(1)
    assert rig.job(3).why == "waits for 2 of resource lic"
    rig.exit(1, 4, 5, 6, 7)
    assert rig.job(3).why != "waits for 2 of resource lic"


def test_an_operator_cannot_resize_beyond_it() -> None:
    rig = malleable({"lic": 5}, ["lic=1/proc"])
    rig.exit(9)
    rig.answer(1, Verb.REJECT)
    assert rig.ask_for(1, 8).refusal == "job 1 needs more of resource lic for that than is free"

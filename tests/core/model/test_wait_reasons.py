"""Why jobs wait: reasons are data, changes alone are stored, sentences are made on demand."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import Core, commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.jobs import JobSpec, JobType
from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason, from_record, sentence, to_record
from pliant.core.state.json_records import job_from_record, job_to_record
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.sizes import parse_sizes
from pliant.strategies import Strategy, known_strategies, load_strategy

REASONS = [
    WaitReason(WaitCode.PROCESSORS, live=(("reach", 3),)),
    WaitReason(WaitCode.QUEUE, (("policy", "sjf"),)),
    WaitReason(WaitCode.TOO_WIDE, (("most", 8), ("whose", "largest cluster"))),
    WaitReason(WaitCode.GROWTH),
    WaitReason(WaitCode.PASSED_OVER),
    WaitReason(WaitCode.PROFIT),
    WaitReason(WaitCode.UNSETTLED, (("why", "not profitable"),)),
    WaitReason(WaitCode.LOOKAHEAD, (("job", 7),)),
    WaitReason(WaitCode.SUSPENDING),
    WaitReason(WaitCode.RESOURCE, (("name", "matlab"), ("amount", 2))),
    WaitReason(WaitCode.NODES, (("needs", "2 gpu per process"),)),
    WaitReason(WaitCode.USER_LIMIT, (("user", "ann"), ("limit", 8))),
    WaitReason(WaitCode.DEPENDENCY, (("what", "job 1 to end"),)),
    WaitReason(WaitCode.BEGIN, (("when", "2026-12-24 08:00:00"),)),
]


def test_every_code_has_a_sentence() -> None:
    assert {reason.code for reason in REASONS} == set(WaitCode)
    assert all(reason.sentence(4) for reason in REASONS)
    assert "under the present policy, sjf" in REASONS[1].sentence(4)


def test_numbers_of_the_moment_are_shown_and_make_no_difference() -> None:
    few, fewer = (WaitReason(WaitCode.PROCESSORS, live=(("reach", n),)) for n in (3, 2))
    assert few == fewer
    assert few.sentence(4, now=True) != fewer.sentence(4, now=True)
    assert few.sentence(4) == fewer.sentence(4)
    assert sentence("of its own", 4, now=True) == "of its own"


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_survives_a_restart(reason: WaitReason) -> None:
    assert from_record(to_record(reason)) == reason


@pytest.mark.parametrize("record", [None, [], ["of_tomorrow", []], ["lookahead", []], ["queue"], 7])
def test_a_reason_of_another_version_is_left_out(record: object) -> None:
    assert from_record(record) is None


def busy(strategy: str | Strategy, waiting: int = 50) -> Rig:
    """Jobs 1 and 2 hold all of 8 processors; others wait for more than ever comes free."""
    rig = Rig({"n1": 4, "n2": 4}, strategy)
    for number in (1, 2):
        rig.run(number, "4")
    for number in range(3, 3 + waiting):
        rig.submit(number, "5-8" if number % 2 else "6")
    return rig


def stored(rig: Rig, *batch: events.Event) -> set[int]:
    """The jobs that are stored by the passes that follow from events."""
    jobs: set[int] = set()
    made = rig.core.handle_all(batch, rig.now)
    for _ in range(10):
        for command in made:
            if isinstance(command, commands.Store):
                jobs |= set(command.jobs)
        order = made[-1] if made else None
        if not isinstance(order, commands.RunStrategy):
            return jobs
        plan = rig.strategy.plan(order.view, order.outcomes)
        made = rig.core.handle(events.PlanReady(order.cycle, plan), rig.now)
    raise AssertionError("it plans for ever")


@pytest.mark.parametrize("name", [n for n in known_strategies() if "user" not in n])
def test_a_pass_over_unchanged_waiting_jobs_stores_none_of_them(name: str) -> None:
    rig = busy(name)
    # More can be given to jobs than before, and not enough for any of those that wait.
    assert stored(rig, events.NodeRegistered(NodeName("n3"), 1)) == set()
    assert {rig.job(n).state.value for n in range(3, 53)} == {"PENDING"}


def test_an_arrival_stores_only_itself() -> None:
    rig = busy("equipartition")
    spec = JobSpec(JobId(99), "new", "ann", JobType.MPI, parse_sizes("5"), rig.now)
    assert stored(rig, events.JobSubmitted(spec)) == {99}


class Texts(Strategy):
    """Says a text of its own to everybody."""

    text = "for want of luck"

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        return Availability(True, view.now, 1)

    def allocate_processors(self, view: View) -> Plan:
        return Plan(reasons={job.id: self.text for job in view.waiting})


def test_a_text_of_a_strategy_is_stored_when_it_changes() -> None:
    strategy = Texts()
    rig = Rig({"n1": 4}, strategy)
    for number in (1, 2, 3):
        rig.submit(number, "2")
    assert rig.job(2).why == rig.job(2).reason == "for want of luck"
    assert stored(rig, events.NodeRegistered(NodeName("n2"), 1)) == set()
    strategy.text = "for want of processors"
    assert stored(rig, events.NodeRegistered(NodeName("n3"), 1)) == {1, 2, 3}


def test_who_asks_sees_the_numbers_of_the_last_pass() -> None:
    rig = busy("equipartition", 3)
    assert "available to it now: 0" in explain(rig.core, JobId(4), rig.now)[0]
    rig.do(events.NodeRegistered(NodeName("n3"), 3))
    assert "available to it now: 3" in explain(rig.core, JobId(4), rig.now)[0]
    assert rig.job(4).why == "waits for at least 6 processors"
    again = job_from_record(job_to_record(rig.job(4)))
    assert (again.wait, again.why) == (rig.job(4).wait, rig.job(4).why)


def test_a_start_leaves_no_reason_behind() -> None:
    rig = busy("equipartition", 1)
    assert rig.job(3).wait is not None
    rig.do(events.NodeRegistered(NodeName("n3"), 8))
    assert rig.job(3).wait is None
    assert "needs" not in rig.job(3).why


def test_nobody_makes_sentences_for_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> str:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(WaitReason, "sentence", asked)
    core = Core("max-fit", silent=True)
    strategy = load_strategy("max-fit")
    core.handle(events.NodeRegistered(NodeName("n1"), 4), 0.0)
    specs = [JobSpec(JobId(n), "j", "ann", JobType.MPI, parse_sizes("3"), 0.0) for n in range(1, 9)]
    order = core.handle_all([events.JobSubmitted(spec) for spec in specs], 0.0)[-1]
    assert isinstance(order, commands.RunStrategy)
    core.handle(events.PlanReady(order.cycle, strategy.plan(order.view)), 0.0)
    assert core.jobs[JobId(8)].wait == WaitReason(WaitCode.QUEUE)

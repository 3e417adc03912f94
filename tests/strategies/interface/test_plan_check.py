"""What counts as a fault of a plan, and that no plan of ours has one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corekit.replay import Job, Replay
from corekit.views import make_view, running, waiting
from pliant.core.model.views_and_plans import Offer, Plan, PromisedJob, Start, Suspension, View
from pliant.core.values.ids import JobId
from pliant.core.values.processors import block
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.strategies import load_strategy
from pliant.strategies.interface.plan_check import find_fault

#: 12 processors: job 1 has 0-3, job 2 has 4-5 and cannot be resized, 10-11 are promised to job 9.
VIEW = make_view(
    12,
    (waiting(7, "2-4"), waiting(8, "6")),
    (running(1, 0, 4, "2-8"), running(2, 4, 2)),
    (PromisedJob(JobId(9), 9.0, block(10, 2), Sizes((2,))),),
)


def start(job: int, processors: int) -> Start:
    return Start(JobId(job), processors)


def offer(job: int, processors: int) -> Offer:
    return Offer(JobId(job), processors)


def test_suspensions_in_plans_are_checked() -> None:
    able = replace(VIEW.running[1], suspendable=True)
    view = replace(VIEW, running=(VIEW.running[0], able), suspended=(waiting(5, "1-4"),))
    fits = Plan(suspends=(Suspension(JobId(2), "later"),), starts=(start(5, block(6, 3)),))
    assert find_fault(view, fits) is None
    for suspends, fault in (
        ((Suspension(JobId(1)),), "suspends job 1, which cannot be"),
        ((Suspension(JobId(2)), Suspension(JobId(2))), "suspends a job twice"),
        ((Suspension(JobId(2), "\ud800"),), "no text"),
    ):
        assert fault in (find_fault(view, Plan(suspends=suspends)) or "")


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(starts=(start(7, block(6, 4)),)),
        Plan(shrinks=(offer(1, block(0, 2)),), starts=(start(8, block(2, 2) | block(6, 4)),)),
        Plan(expands=(offer(1, block(0, 4) | block(6, 4)),), wake_at=1000.5),
        Plan(starts=(start(9, block(6, 2)), start(7, block(10, 2)))),
        Plan(starts=(start(7, block(6, 2)),), expands=(offer(1, block(0, 4) | block(8, 2)),)),
    ],
)
def test_plans_that_fit(plan: Plan) -> None:
    assert find_fault(VIEW, plan) is None


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (
            Plan(starts=(start(7, block(4, 3)),)),
            "starts job 7 on processors that are not there: 4-5",
        ),
        (
            Plan(starts=(start(7, block(6, 2)), start(8, block(6, 6)))),
            "starts job 8 on processors that are not there: 6-7,10-11",
        ),
        (Plan(starts=(start(7, block(6, 1)),)), "starts job 7 on a size that is not one of 2-4"),
        (Plan(starts=(start(7, -1),)), "starts job 7 on a size that is not one of 2-4"),
        (Plan(starts=(start(3, block(6, 2)),)), "starts job 3, which does not wait"),
        (Plan(starts=(start(7, block(6, 2)),) * 2), "starts one job twice"),
        (Plan(shrinks=(offer(2, block(4, 1)),)), "offers to job 2, which cannot be resized now"),
        (Plan(expands=(offer(5, block(0, 8)),)), "offers to job 5, which cannot be resized now"),
        (Plan(shrinks=(offer(1, block(0, 1)),)), "offers job 1 a size that is not one of 2-8"),
        (Plan(shrinks=(offer(1, -4),)), "offers job 1 a size that is not one of 2-8"),
        (
            Plan(shrinks=(offer(1, block(2, 3)),)),
            "shrinks job 1 to processors that it does not have",
        ),
        (Plan(shrinks=(offer(1, block(0, 2)), offer(1, block(0, 3)))), "makes one job two offers"),
        (
            Plan(expands=(offer(1, block(1, 3) | block(6, 4)),)),
            "expands job 1 without processors that it has",
        ),
        (
            Plan(expands=(offer(1, block(0, 6)),)),
            "gives job 1 processors that are not free: 4-5",
        ),
        (
            Plan(starts=(start(7, block(6, 2)),), expands=(offer(1, block(0, 4) | block(7, 2)),)),
            "gives job 1 processors that are not free: 7",
        ),
        (Plan(wake_at=float("nan")), "wants to be woken at nan, and it is 1000.0"),
        (Plan(wake_at=1000.0), "wants to be woken at 1000.0, and it is 1000.0"),
        (Plan(reasons={JobId(7): "\udc80"}), r"says what is no text: '\udc80'"),
    ],
)
def test_plans_that_do_not(plan: Plan, fault: str) -> None:
    assert find_fault(VIEW, plan) == fault


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    jobs = []
    for number in range(1, draw(st.integers(1, 10)) + 1):
        sizes = parse_sizes(draw(st.sampled_from(["1", "3", "8", "1-8", "2-8:x2", "{1,2,5}"])))
        times = draw(st.integers(0, 60)), draw(st.integers(1, 60)), draw(st.integers(1, 60))
        jobs.append(Job(number, *times, sizes, sizes.max, malleable=draw(st.booleans())))
    return jobs


@pytest.mark.parametrize("name", ["equipartition", "fcfs+easy", "easy-pref", "egs+pwa"])
@settings(max_examples=20)
@given(workloads())
def test_plans_of_ours_fit(name: str, jobs: list[Job]) -> None:
    def watch(view: View, plan: Plan) -> None:
        assert find_fault(view, plan) is None

    Replay(load_strategy(name), 8, strict=False).run(jobs, watch)


def test_a_job_that_is_promised_others_gives_up_its_own() -> None:
    plan = Plan(starts=(start(9, block(10, 2)),))
    assert find_fault(VIEW, plan) is None
    assert find_fault(replace(VIEW, promised=()), plan) == "starts job 9, which does not wait"

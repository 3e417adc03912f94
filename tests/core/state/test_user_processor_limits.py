"""The limit of processors for each user, in the core."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import events
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.wait_reasons import WaitCode
from pliant.core.state.user_processor_limits import used
from pliant.core.values.ids import FIRST_START
from pliant.core.values.user_limits import NO_LIMITS, UserLimit, UserLimits

FOUR = UserLimits(UserLimit(running_processors=4), {"root": UserLimit()})


def states(rig: Rig, *numbers: int) -> list[JobState]:
    return [rig.state(number) for number in numbers]


@pytest.mark.parametrize("strategy", ["fcfs", "fcfs+conservative", "equipartition", "easy-min"])
def test_jobs_of_other_users_pass_those_over_the_limit(strategy: str) -> None:
    rig = Rig({"n1": 16}, strategy=strategy, user_limits=FOUR)
    rig.submit(1, "3", user="ann")
    rig.submit(2, "2", user="ann")
    rig.submit(3, "4", user="bob")
    rig.submit(4, "9", user="root")
    assert states(rig, 1, 2, 3, 4) == [
        JobState.STARTING,
        JobState.PENDING,
        JobState.STARTING,
        JobState.STARTING,
    ]
    wait = rig.job(2).wait
    assert wait is not None
    assert (wait.code, dict(wait.parameters)) == (WaitCode.USER_LIMIT, {"user": "ann", "limit": 4})
    rig.up(1)
    rig.exit(1)
    assert rig.state(2) is JobState.STARTING


def test_jobs_of_one_plan_share_what_their_user_may_have() -> None:
    rig = Rig({"n1": 16}, strategy="fcfs", user_limits=FOUR)
    jobs = []
    for number in range(1, 5):
        rig.submit(number, "2", user="ann", held=True)
        jobs.append(number)
    rig.do(*(events.JobReleased(rig.job(number).id) for number in jobs))
    assert states(rig, *jobs) == [JobState.STARTING] * 2 + [JobState.PENDING] * 2
    assert used(rig.core.state) == {"ann": 4}
    assert not [note for note in rig.notes if note.kind == "plan.refused"]


def test_a_job_starts_at_a_smaller_size_and_does_not_grow_over_the_limit() -> None:
    rig = Rig({"n1": 16}, user_limits=FOUR)
    rig.submit(1, "2", user="ann")
    rig.run(2, "1-8", user="ann")
    assert rig.job(2).size == 2
    rig.up(1)
    rig.exit(1)
    rig.wait(1)
    assert rig.offer(2).items[0].sizes == "4"
    assert used(rig.core.state) == {"ann": 4}


def test_an_operator_cannot_resize_over_the_limit() -> None:
    rig = Rig({"n1": 16}, user_limits=FOUR)
    rig.run(1, "1-8", user="ann")
    assert rig.job(1).size == 4
    assert "limit of 4 running processors" in rig.ask_for(1, 6).refusal


def test_a_request_of_an_application_is_limited() -> None:
    rig = Rig({"n1": 16}, strategy="fcfs", user_limits=FOUR)
    rig.submit(1, "1-8", prefer=2, user="ann")
    rig.up(1)
    rig.register(1, "1-8")
    rig.request(1, "3-8")
    rig.answer(1, Verb.ACCEPT)
    rig.ready(1)
    rig.finish(1)
    assert rig.job(1).size == 4


def test_a_lower_limit_ends_nothing_and_allows_nothing_more() -> None:
    rig = Rig({"n1": 16}, strategy="fcfs")
    rig.submit(1, "8", user="ann")
    rig.up(1)
    policy = rig.core.state.policy
    rig.do(events.SettingsChanged(rig.limits, policy, rig.shares, FOUR))
    rig.user_limits = FOUR
    rig.submit(2, "1", user="ann")
    assert states(rig, 1, 2) == [JobState.RUNNING, JobState.PENDING]
    rig.restart()
    world = events.LiveWorld(rig.job(1).id, 1, FIRST_START, rig.job(1).allocation, True)
    rig.do(events.NodeRegistered(next(iter(rig.core.nodes)), 16, worlds=(world,)))
    assert rig.state(2) is JobState.PENDING
    rig.do(events.SettingsChanged(rig.limits, policy, rig.shares, NO_LIMITS))
    assert rig.state(2) is JobState.STARTING

"""Jobs are charged for the processors that they have, at each moment."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest

from corekit.rig import Rig
from pliant.core import events
from pliant.core.model.negotiation import Verb
from pliant.core.model.usage import AllocationPhase
from pliant.core.values.fair_share_settings import Shares
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.user_limits import NO_LIMITS


def used(rig: Rig, user: str = "ann") -> float:
    """Return the usage of a user at present."""
    accounting = rig.core.state.accounting
    assert accounting is not None
    half_life = accounting.shares.half_life_s
    return sum(row.at_time(rig.now, half_life) for row in accounting.rows if row.user == user)


def brief(phases: list[AllocationPhase]) -> list[tuple[int, float, float, int]]:
    return [(phase.job, phase.start, phase.end, phase.processors) for phase in phases]


def test_a_rigid_job_is_charged_from_its_start_to_its_end() -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(1, "6", user="bob", account="bio")
    rig.wait(5)
    rig.up(1)
    rig.wait(5)
    assert used(rig, "bob") == 60.0
    assert rig.phases == []
    rig.exit(1)
    rig.wait(100)
    assert used(rig, "bob") == 60.0
    phase = AllocationPhase(
        1, 1, "bob", 0, "bio", 1000.0, 1010.0, 6, (NodeName("n1"), NodeName("n2"))
    )
    assert rig.phases == [phase]
    assert rig.usage["bio", "bob"].seconds == 60.0
    assert used(rig) == 0.0


def test_a_job_that_shrinks_is_charged_less() -> None:
    rig = Rig({"n1": 8})
    rig.run(1, "1-8")
    rig.wait(10)
    rig.submit(2, "4", user="bob")
    rig.shrink_to_go(1)
    rig.wait(1)
    assert used(rig) == 88.0
    rig.finish(1)
    rig.up(2)
    rig.wait(10)
    assert (used(rig), used(rig, "bob")) == (128.0, 40.0)
    rig.exit(1)
    rig.exit(2)
    assert brief(rig.phases) == [
        (1, 1000.0, 1011.0, 8),
        (1, 1011.0, 1021.0, 4),
        (2, 1011.0, 1021.0, 4),
    ]


def test_an_offer_that_is_refused_is_not_charged() -> None:
    rig = Rig({"n1": 8})
    rig.submit(1, "4", user="bob")
    rig.up(1)
    rig.run(2, "1-8")
    rig.wait(10)
    rig.exit(1)
    rig.wait(5)
    rig.answer(2, Verb.REJECT)
    rig.wait(5)
    assert used(rig) == 80.0
    rig.exit(2)
    assert brief(rig.phases)[1:] == [(2, 1000.0, 1020.0, 4)]


def test_a_requeued_job_has_a_phase_for_each_run() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "4", requeue=True)
    rig.up(1)
    rig.wait(10)
    rig.do(events.JobRequeued(JobId(1)))
    rig.exit(1)
    rig.wait(10)
    rig.up(1)
    rig.exit(1, run=2)
    assert [(phase.run, phase.start, phase.end) for phase in rig.phases] == [
        (1, 1000.0, 1010.0),
        (2, 1010.0, 1020.0),
    ]


def test_usage_survives_a_restart_of_the_server() -> None:
    rig = Rig({"n1": 4}, shares=Shares(50.0))
    rig.submit(1, "2")
    rig.up(1)
    rig.wait(30)
    rig.submit(2, "1", user="bob")
    rig.up(2)
    rig.wait(30)
    before = used(rig), used(rig, "bob")
    rig.restart()
    assert (used(rig), used(rig, "bob")) == pytest.approx(before)
    rig.wait(10)
    world = events.LiveWorld(JobId(1), 1, FIRST_START, rig.job(1).allocation, True)
    other = events.LiveWorld(JobId(2), 1, FIRST_START, rig.job(2).allocation, True)
    rig.do(events.NodeRegistered(NodeName("n1"), 4, worlds=(world, other)))
    rig.exit(1)
    assert brief(rig.phases) == [(1, 1000.0, 1070.0, 2)]


def test_other_half_lives_count_from_now_on() -> None:
    rig = Rig({"n1": 4}, shares=Shares(math.inf))
    rig.submit(1, "2")
    rig.up(1)
    rig.wait(10)
    rig.exit(1)
    rig.wait(100)
    policy = rig.core.state.policy
    rig.do(events.SettingsChanged(rig.limits, policy, Shares(50.0), NO_LIMITS))
    assert used(rig) == 20.0
    rig.wait(50)
    assert used(rig) == pytest.approx(10.0)


def test_the_sums_of_users_and_of_phases_agree() -> None:
    rig = Rig({"n1": 8}, shares=Shares(math.inf), strategy="fcfs")
    for number in range(1, 7):
        rig.submit(number, str(number % 3 + 1), user="ab"[number % 2])
        rig.wait(3.7)
    for number in range(1, 7):
        if rig.job(number).ranks:
            rig.up(number)
            rig.wait(number)
            rig.exit(number)
    sums: dict[str, float] = defaultdict(float)
    for phase in rig.phases:
        sums[phase.user] += (phase.end - phase.start) * phase.processors
    for user in "ab":
        assert used(rig, user) == pytest.approx(sums[user])

"""Operators fix the size of a job, and are told why not."""

from __future__ import annotations

import pytest

from corekit.rig import Rig, half
from pliant.core import commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.negotiation import Template
from pliant.core.values.ids import JobId
from pliant.core.values.negotiation_policy import GrowIf, NegotiationPolicy


def test_an_operator_fixes_a_size_and_gives_it_back(rig: Rig) -> None:
    assert rig.ask_for(1, 5).message == "job 1 was offered 5 processors"
    rig.shrink_to_go(1)
    rig.finish(1)
    assert (rig.job(1).ranks, rig.job(1).size_fixed_by_operator) == ((0, 1, 2, 3, 4), True)
    assert not rig.take(commands.SendOffer)
    assert "strategy again" in rig.ask_for(1, 0).message
    assert rig.offer(1).items[0].sizes == "8"


def test_an_operator_may_name_what_to_give_back(rig: Rig) -> None:
    rig.ask_for(1, 6, release=[1, 6])
    rig.shrink_to_go(1)
    assert rig.one(commands.SendGo).leaving_ranks == (1, 6)
    rig.finish(1)
    assert rig.job(1).ranks == (0, 2, 3, 4, 5, 7)


@pytest.mark.parametrize(
    ("size", "release", "says"),
    [
        (9, [], "size 9 is not one of job 1's sizes 1-8"),
        (8, [], "already has 8 processors"),
        (6, [1], "names 1 processor, the new size gives back 2"),
        (7, [11], "does not have all of the processors"),
    ],
)
def test_what_an_operator_cannot_have(rig: Rig, size: int, release: list[int], says: str) -> None:
    assert says in rig.ask_for(1, size, release).refusal
    assert rig.stage(1) is None
    assert not rig.job(1).size_fixed_by_operator


def test_an_operator_cannot_have_more_than_is_free(rig: Rig) -> None:
    half(rig)
    assert "needed: 2 more processors, free: 0" in rig.ask_for(1, 6).refusal
    assert "the new size is larger" in rig.ask_for(1, 6, [1]).refusal


def test_not_every_job_can_be_resized() -> None:
    rig = Rig({"n1": 4})
    assert rig.ask_for(9, 2).refusal == "there is no job 9"
    rig.submit(1, "1-2")
    assert "still starting: try again" in rig.ask_for(1, 1).refusal
    rig.up(1)
    assert "has not registered" in rig.ask_for(1, 1).refusal
    rig.register(1)
    rig.do(events.ApplicationLeft(JobId(1), 1))
    assert "not connected" in rig.ask_for(1, 1).refusal
    rig.exit(1)
    assert "already ended" in rig.ask_for(1, 0).refusal


# ---------------------------------------------------------------- whether growth must gain time


def grown(grow_if: GrowIf | None, policy: GrowIf = GrowIf.GAIN) -> tuple[Rig, Template]:
    """Job 1 starts on half of the machine and is offered the rest by the strategy."""
    rig = Rig({"n1": 4}, policy=NegotiationPolicy(grow_if=policy))
    rig.submit(2, "2")
    rig.up(2)
    rig.submit(1, "1-4", grow_if=grow_if)
    rig.up(1)
    rig.register(1)
    rig.exit(2)
    return rig, rig.offer(1)


@pytest.mark.parametrize(
    ("grow_if", "policy", "skips"),
    [
        (None, GrowIf.GAIN, False),
        (GrowIf.ALWAYS, GrowIf.GAIN, True),
        (None, GrowIf.ALWAYS, True),
        (GrowIf.GAIN, GrowIf.ALWAYS, False),
    ],
)
def test_a_job_says_whether_growth_must_gain_time_or_the_server_does(
    grow_if: GrowIf | None, policy: GrowIf, skips: bool
) -> None:
    rig, offer = grown(grow_if, policy)
    assert offer.items[0].sizes == "4"
    assert offer.skip_gain_test is skips
    why = "\n".join(explain(rig.core, JobId(1), rig.now))
    assert ("takes every growth" in why) is skips
    assert ("--grow-if always" in why) is not skips
    rig.restart()
    assert rig.job(1).spec.grow_if is grow_if


def test_an_operators_growth_need_not_gain_time(rig: Rig) -> None:
    rig.ask_for(1, 4)
    rig.shrink_to_go(1)
    rig.finish(1)
    rig.take(commands.SendOffer)
    rig.ask_for(1, 8)
    assert rig.offer(1).skip_gain_test

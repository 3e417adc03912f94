"""Who would not grow is asked before others give for it: its neighbours do not shrink in vain."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from corekit.talks import machine
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.values.processors import NONE, count

S = ResizeStage


def two_jobs() -> Rig:
    """Job 1 has six of eight processors, job 2 has two; four each would be fair."""
    return machine("equipartition", {1: ("1-6", 6), 2: ("1-4", 2)}, idle=0)


@pytest.fixture
def pair() -> Rig:
    """Two jobs of which the second has refused to grow, for which the first had shrunk."""
    rig = two_jobs()
    rig.answer(1, Verb.ACCEPT, rig.resize(1).negotiation.proposal)
    rig.finish(1)
    rig.wait(1)
    rig.answer(2, Verb.REJECT)
    rig.grow_to_go(1)
    rig.finish(1)
    assert (rig.job(1).size, rig.job(2).size, rig.job(2).refused_growths) == (6, 2, 1)
    rig.notes.clear()
    rig.wait(rig.limits.quiet_s)
    assert (rig.stage(1), len(rig.resize(1).after)) == (S.NEGOTIATING, 4)
    return rig


def test_nobody_gives_before_it_agrees(pair: Rig) -> None:
    rig = pair
    rig.answer(1, Verb.ACCEPT)
    assert (rig.stage(1), rig.stage(2)) == (S.AGREED, S.NEGOTIATING)
    rig.answer(2, Verb.ACCEPT)
    assert (rig.stage(1), rig.stage(2)) == (S.GO, S.AGREED)
    rig.finish(1)
    assert (rig.job(1).size, rig.stage(2)) == (4, S.PREPARE)
    rig.ready(2)
    rig.finish(2)
    assert (rig.job(2).size, rig.job(2).refused_growths) == (4, 0)


@pytest.mark.parametrize("silent", [False, True])
def test_who_was_to_give_is_let_go_when_it_refuses_again(pair: Rig, *, silent: bool) -> None:
    rig = pair
    rig.answer(1, Verb.ACCEPT)
    if silent:
        rig.wait(rig.limits.offer_timeout_s + 1)
    else:
        rig.answer(2, Verb.REJECT)
    assert (rig.stage(1), rig.stage(2)) == (None, None)
    assert (rig.state(1), rig.job(1).size, rig.job(1).no_offers_until) == (JobState.RUNNING, 6, 0.0)
    assert "resize.go" not in rig.kinds(1)
    assert (rig.job(2).refused_growths, rig.job(2).reserved, rig.free()) == (2, NONE, NONE)
    assert rig.job(2).no_offers_until == pytest.approx(rig.now + 2 * rig.limits.quiet_s, abs=2)


def test_if_nobody_gives_it_is_not_asked(pair: Rig) -> None:
    rig = pair
    rig.answer(1, Verb.REJECT)
    assert (rig.stage(1), rig.stage(2)) == (None, None)
    assert "offer.sent" not in rig.kinds(2)
    assert rig.job(2).reserved == NONE


def test_what_is_idle_it_is_offered_at_once(pair: Rig) -> None:
    rig = pair
    rig.answer(1, Verb.REJECT)
    rig.exit(1)
    rig.wait(1)
    assert (rig.stage(2), len(rig.resize(2).after), rig.job(2).reserved) == (S.NEGOTIATING, 4, NONE)


def test_it_may_take_a_part(pair: Rig) -> None:
    rig = pair
    rig.answer(1, Verb.ACCEPT)
    rig.counter(2, "3")
    assert (rig.stage(1), rig.stage(2)) == (S.GO, S.AGREED)
    rig.finish(1)
    assert (rig.stage(2), count(rig.job(2).occupied), rig.job(1).size) == (S.PREPARE, 3, 4)


def test_who_never_refused_is_asked_when_the_processors_are_there() -> None:
    rig = two_jobs()
    rig.answer(1, Verb.ACCEPT, rig.resize(1).negotiation.proposal)
    assert (rig.stage(1), rig.stage(2)) == (S.GO, None)
    rig.finish(1)
    rig.wait(1)
    assert (rig.job(1).size, rig.stage(2)) == (4, S.NEGOTIATING)

"""Speeds that applications report: what is news, what strategies see, what users are told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from corekit.rig import Rig
from pliant.core import events
from pliant.core.job_explanation import explain
from pliant.core.values.ids import JobId


@pytest.fixture
def rig() -> Rig:
    rig = Rig({"n1": 8}, "steepest-ascent")
    rig.run(1, "1-8")
    return rig


def say(rig: Rig, seconds: Mapping[int, float], run: int = 1) -> int:
    """An application reports; how many plans that makes."""
    before = len(rig.plans)
    rig.do(events.SpeedMeasured(JobId(1), run, seconds))
    return len(rig.plans) - before


def test_a_measurement_is_news_once(rig: Rig) -> None:
    assert say(rig, {8: 0.5}) > 0
    assert say(rig, {8: 0.51}) == 0, "as good as the same"
    assert rig.job(1).measured == {8: 0.5}
    assert say(rig, {8: 0.6}) > 0
    assert say(rig, {8: 0.6, 4: 1.2}) > 0
    assert rig.job(1).measured == {8: 0.6, 4: 1.2}


def test_nobody_else_may_say_it(rig: Rig) -> None:
    assert say(rig, {8: 0.5}, run=2) == 0
    rig.do(events.SpeedMeasured(JobId(7), 1, {8: 0.5}))
    rig.exit(1)
    assert say(rig, {8: 0.5}) == 0
    assert not rig.job(1).measured


def test_a_job_that_gains_nothing_gives_way(rig: Rig) -> None:
    """Its user's model is linear; what it measures is not."""
    rig.submit(2, "1-8")
    rig.shrink_to_go(1)
    rig.finish(1)
    rig.up(2)
    rig.register(2, "1-8")
    assert (rig.job(1).size, rig.job(2).size) == (7, 1)
    say(rig, {1: 1.1, 7: 1.0, 8: 1.0})
    assert len(rig.resize(1).after) == 1


def test_why_tells_it(rig: Rig) -> None:
    progress = {"safe_point_age_s": 1.0, "seconds_per_iteration": {"2": 0.41, "4": 0.25}}
    text = explain(rig.core, JobId(1), rig.now, progress)
    assert "an iteration takes 0.41 s on 2, 0.25 s on 4 processors, as it has measured" in text

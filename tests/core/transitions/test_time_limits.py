"""When a job is ended: always at its limit, at its estimate under some strategies only."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.jobs import Exit, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Verb
from pliant.core.model.resize import ResizeStage
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.values.ids import FIRST_START, JobId
from pliant.core.values.processors import NONE
from pliant.core.values.sizes import parse_sizes
from pliant.core.values.speedup import parse_speedup

#: It promises starts by estimates.
CONSERVATIVE = "fcfs+conservative"


@pytest.fixture
def rig() -> Rig:
    return Rig({"n1": 4, "n2": 4}, CONSERVATIVE)


@pytest.fixture
def malleable(rig: Rig) -> Rig:
    """Job 1 runs on eight processors since now; its work is 800 s on one of them."""
    rig.submit(1, "1-8", estimate_s=100.0, requested=8)
    rig.up(1)
    rig.register(1)
    rig.sent.clear()
    return rig


def alive(rig: Rig) -> bool:
    return rig.job(1).ending is None


def shrink(rig: Rig, size: int) -> None:
    rig.ask_for(1, size)
    rig.answer(1, Verb.ACCEPT)
    rig.finish(1)


def test_a_rigid_job_is_ended_at_its_estimate(rig: Rig) -> None:
    rig.submit(1, "4", estimate_s=50.0)
    rig.up(1)
    rig.wait(49.99)
    assert alive(rig)
    rig.wait(0.01)
    assert rig.job(1).reason.startswith("over its estimate of 50 s: ")
    assert any(note.kind == "job.timeout" for note in rig.notes)
    assert rig.one(commands.Kill) == commands.Kill(JobId(1), 1, NONE, rig.limits.kill_grace_s)
    rig.exit(1, signal=15)
    assert rig.state(1) is JobState.TIMEOUT


def test_an_end_at_the_very_instant_wins(rig: Rig) -> None:
    rig.submit(1, "4", estimate_s=50.0)
    rig.up(1)
    rig.now += 50
    rig.do(
        events.ProcessesExited(JobId(1), 1, FIRST_START, tuple(Exit(p, 0) for p in range(4))),
        events.TimerFired(Timer(TimerKind.ESTIMATE, JobId(1), 1)),
    )
    assert rig.state(1) is JobState.COMPLETED


def test_rounding_does_not_end_a_job_whose_size_changed(malleable: Rig) -> None:
    rig = malleable
    rig.wait(0.1)
    shrink(rig, 3)
    end = rig.job(1).expected_end
    assert end is not None
    rig.wait(end - rig.now)
    assert alive(rig)
    rig.exit(1)
    assert rig.state(1) is JobState.COMPLETED


@pytest.mark.parametrize(
    ("limit", "why"),
    [(30.0, "over its time limit of 30 s"), (60.0, "over its estimate of 50 s: ")],
)
def test_whichever_comes_first(rig: Rig, limit: float, why: str) -> None:
    rig.submit(1, "4", estimate_s=50.0, limit_s=limit)
    rig.up(1)
    rig.wait(70)
    assert rig.job(1).reason.startswith(why)


def test_a_job_that_starts_on_fewer_processors_gets_more_time() -> None:
    rig = Rig({"n1": 2}, CONSERVATIVE)
    rig.submit(1, "1-8", estimate_s=10.0, requested=8)
    rig.wait(39)
    assert alive(rig)
    rig.wait(1.1)
    assert rig.job(1).reason.startswith("over its estimate of 10 s on 8 processors: ")


def test_a_shrunk_job_gets_more_time(malleable: Rig) -> None:
    rig = malleable
    rig.wait(50)
    shrink(rig, 4)
    assert rig.job(1).expected_end == pytest.approx(rig.now + 100)
    rig.wait(99)
    assert alive(rig)
    rig.wait(1.1)
    assert not alive(rig)


def test_a_grown_job_gets_less_time(malleable: Rig) -> None:
    rig = malleable
    shrink(rig, 2)
    rig.wait(100)
    rig.ask_for(1, 8)
    rig.grow_to_go(1)
    rig.finish(1)
    assert rig.job(1).expected_end == pytest.approx(rig.now + 75)
    rig.wait(74)
    assert alive(rig)
    rig.wait(1.1)
    assert not alive(rig)


@pytest.mark.parametrize("committed", [True, False])
def test_time_spent_on_moving_data_is_no_work(malleable: Rig, committed: bool) -> None:
    rig = malleable
    rig.ask_for(1, 4)
    rig.answer(1, Verb.ACCEPT)
    rig.wait(20)
    rig.begin(1)
    rig.wait(7)
    rig.decide(1, committed=committed)
    assert rig.job(1).done == 160.0
    assert rig.job(1).expected_end == pytest.approx(rig.now + (160 if committed else 80))


def test_nobody_is_ended_for_its_estimate_while_it_moves_data(malleable: Rig) -> None:
    rig = malleable
    rig.wait(99)
    rig.ask_for(1, 4)
    rig.answer(1, Verb.ACCEPT)
    rig.begin(1)
    rig.wait(5)
    assert rig.stage(1) is ResizeStage.BEGUN
    rig.decide(1)
    rig.wait(1.9)
    assert alive(rig)
    rig.wait(0.2)
    assert not alive(rig)


def test_an_estimate_goes_on_over_a_restart(malleable: Rig) -> None:
    rig = malleable
    rig.wait(50)
    shrink(rig, 4)
    rig.restart()
    for name in ("n1", "n2"):
        live = rig.job(1).occupied & rig.core.nodes[name].processors  # type: ignore[index]
        worlds = (events.LiveWorld(JobId(1), 1, FIRST_START, live, True),) if live else ()
        rig.do(events.NodeRegistered(name, 4, worlds=worlds))  # type: ignore[arg-type]
    rig.wait(99)
    assert alive(rig)
    rig.wait(1.1)
    assert not alive(rig)


@pytest.mark.parametrize("strategy", ["fcfs", "fcfs+easy", "equipartition", "easy-pref"])
def test_an_estimate_is_advice_where_the_strategy_promises_nothing(strategy: str) -> None:
    rig = Rig({"n1": 8}, strategy)
    rig.submit(1, "1-8", estimate_s=30.0, requested=1)
    rig.up(1)
    rig.wait(1000)
    assert alive(rig)
    assert "for planning only" in "\n".join(explain(rig.core, JobId(1), rig.now))


@pytest.mark.parametrize("speedup", ["linear", "none", "amdahl:0.5"])
def test_no_job_is_ended_before_it_has_run_as_long_as_its_estimate(speedup: str) -> None:
    rig = Rig({"n1": 8}, CONSERVATIVE)
    rig.submit(1, "1-8", estimate_s=30.0, requested=1, speedup=parse_speedup(speedup))
    rig.up(1)
    assert rig.job(1).size == 8
    rig.wait(29.9)
    assert alive(rig)
    rig.wait(0.2)
    assert not alive(rig)
    assert "on 1 processor" in rig.job(1).reason


def test_the_estimate_is_for_the_preferred_size_or_else_the_smallest() -> None:
    for sizes, prefer, expected in (("2-8", 4, 4), ("2-8", None, 2)):
        spec = JobSpec(JobId(1), "x", "ada", JobType.MPI, parse_sizes(sizes, prefer), 0.0)
        assert spec.estimated_for == expected


def test_measured_speed_replaces_the_assumed_speedup(malleable: Rig) -> None:
    """Its user says 100 s on 8, linear speedup; in truth it is as fast on 4."""
    rig = malleable
    rig.do(events.SpeedMeasured(JobId(1), 1, {8: 0.5}))
    assert rig.job(1).expected_end == pytest.approx(rig.now + 100)
    rig.wait(50)
    shrink(rig, 4)
    assert rig.job(1).expected_end == pytest.approx(rig.now + 100)
    rig.do(events.SpeedMeasured(JobId(1), 1, {8: 0.5, 4: 0.5}))
    end = rig.job(1).expected_end
    assert end == pytest.approx(rig.now + 50)
    assert "corrected by measured" in "\n".join(explain(rig.core, JobId(1), rig.now))
    rig.wait(49)
    assert alive(rig)
    rig.wait(1.1)
    assert not alive(rig)


def test_slower_than_assumed_gets_more_time(malleable: Rig) -> None:
    """It is started on the 8 that its estimate is for, and 4 are slower than a half."""
    rig = malleable
    rig.wait(50)
    shrink(rig, 4)
    rig.do(events.SpeedMeasured(JobId(1), 1, {8: 0.5, 4: 4.0}))
    assert rig.job(1).expected_end == pytest.approx(rig.now + 400)
    rig.wait(399)
    assert alive(rig)


def test_no_estimate_no_end(rig: Rig) -> None:
    rig.submit(1, "4")
    rig.up(1)
    rig.wait(10**6)
    assert rig.state(1) is JobState.RUNNING

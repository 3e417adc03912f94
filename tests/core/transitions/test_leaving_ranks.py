"""Leaving ranks that do not exit, and joining ranks that die while data move."""

from __future__ import annotations

import pytest

from corekit.rig import Rig, growing
from pliant.core import commands, events
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.lifecycle import JobState
from pliant.core.model.resize import ResizeStage
from pliant.core.values.ids import ResizeId
from pliant.core.values.processors import from_indices

NODES = {"n1": 4, "n2": 4}


def shrunk() -> Rig:
    """Return a job that shrank from 8 to 4 processors, whose leaving ranks have not exited."""
    rig = Rig(NODES)
    rig.run(1, "1-8")
    rig.submit(2, "4")
    rig.shrink_to_go(1)
    rig.begin(1)
    rig.decide(1)
    assert (rig.state(1), rig.stage(1)) == (JobState.ADAPTING, ResizeStage.RELEASING)
    return rig


def test_a_job_does_not_wait_for_leaving_ranks_that_stay() -> None:
    rig = shrunk()
    rig.wait(rig.limits.release_timeout_s + 0.1)
    assert (rig.state(1), rig.stage(1)) == (JobState.RUNNING, None)
    assert "leaving ranks (n2/0, n2/1, n2/2, n2/3) not gone" in rig.job(1).reason
    assert rig.job(1).occupied == from_indices(range(8))
    assert not rig.take(commands.Kill)
    assert not rig.ask_for(1, 3).refusal


def test_leaving_ranks_that_stay_are_killed_at_last_and_their_processors_used() -> None:
    rig = shrunk()
    rig.wait(rig.limits.resize_deadline_s + 0.1)
    assert rig.one(commands.Kill).processors == from_indices([4, 5, 6, 7])
    rig.exit(1, 4, 5, signal=9)
    assert "leaving ranks (n2/0" in rig.job(1).reason
    rig.exit(1, 6, 7, signal=9)
    assert (rig.state(1), rig.state(2)) == (JobState.RUNNING, JobState.STARTING)
    assert rig.job(1).reason == "runs on 4 processors"
    rig.wait(100)
    assert not rig.take(commands.Kill)


def test_leaving_ranks_that_stay_are_killed_also_after_a_restart() -> None:
    rig = shrunk()
    rig.wait(rig.limits.release_timeout_s + 0.1)
    rig.restart()
    rig.wait(rig.limits.resize_deadline_s + 0.1)
    assert rig.take(commands.Kill)[-1].processors == from_indices([4, 5, 6, 7])


@pytest.fixture
def growth() -> Rig:
    """Return a job that grows from 4 to 8 processors and has begun."""
    rig = Rig(NODES)
    rig.run(1, "1-8")
    growing(rig)
    rig.grow_to_go(1)
    rig.begin(1)
    rig.sent.clear()
    return rig


def test_a_growth_of_which_a_joining_rank_died_may_be_rolled_back(growth: Rig) -> None:
    growth.exit(1, 5, signal=9)
    assert growth.state(1) is JobState.ADAPTING
    growth.decide(1, committed=False, stage="move")
    assert growth.state(1) is JobState.RUNNING
    assert "joining rank 5 on n2/1 died" in growth.job(1).reason
    assert "signal 9" in growth.job(1).reason
    assert growth.one(commands.Kill).processors == from_indices([4, 6, 7])
    growth.wait(100)
    assert growth.state(1) is JobState.RUNNING


def test_a_growth_that_is_not_rolled_back_fails_with_rank_node_and_signal(growth: Rig) -> None:
    growth.exit(1, 5, signal=9)
    growth.wait(growth.limits.rollback_timeout_s - 0.1)
    assert growth.state(1) is JobState.ADAPTING
    growth.wait(0.2)
    assert growth.job(1).ending is JobState.FAILED
    for word in ("joining rank 5", "n2/1", "signal 9", "stage begun"):
        assert word in growth.job(1).reason
    growth.exit(1)
    assert growth.state(1) is JobState.FAILED


def test_the_first_of_several_deaths_sets_the_time(growth: Rig) -> None:
    growth.exit(1, 5, signal=9)
    growth.wait(growth.limits.rollback_timeout_s - 1)
    growth.exit(1, 6, signal=9)
    growth.wait(1.1)
    assert "joining rank 5 on n2/1" in growth.job(1).reason
    assert growth.job(1).ending is JobState.FAILED


def test_the_time_to_roll_back_runs_on_after_a_restart(growth: Rig) -> None:
    growth.exit(1, 5, signal=9)
    growth.restart()
    growth.wait(growth.limits.rollback_timeout_s + 0.1)
    assert growth.job(1).ending is JobState.FAILED


@pytest.mark.parametrize("aborts", [False, True], ids=["hangs", "aborts"])
def test_a_job_with_a_checkpoint_is_queued_again(growth: Rig, *, aborts: bool) -> None:
    job = growth.job(1)
    saved = events.SaveReported(job.id, job.run, ResizeId(0), SaveProgress.SAVED, iteration=40)
    growth.do(saved)
    growth.exit(1, 5, signal=9)
    if aborts:  # the transport ends a rank that talks to the dead one
        growth.exit(1, 2, signal=6)
    growth.wait(growth.limits.rollback_timeout_s + 0.1)
    assert "joining rank 5 on n2/1" in growth.job(1).reason
    growth.exit(1)
    assert (growth.job(1).run, growth.state(1)) == (2, JobState.STARTING)

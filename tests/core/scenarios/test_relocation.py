"""A strategy moves running jobs: saved here, continued there, and nothing is lost on the way."""

from __future__ import annotations

import pytest

from corekit.moving import JOB, N1, N2, Moving
from pliant.core import events
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.lifecycle import JobState as S
from pliant.core.model.nodes import JobMemory, NodeLoad, NodeReservation, ReservationState
from pliant.core.model.views_and_plans import Migration
from pliant.core.state.views import view
from pliant.core.values.ids import FIRST_START, JobId, ResizeId
from pliant.core.values.processors import block
from pliant.core.values.user_limits import UserLimit, UserLimits


def running(sizes: str = "1", **fields: object) -> Moving:
    rig = Moving(**fields)  # type: ignore[arg-type]
    rig.run(1, sizes)
    assert rig.job(1).ranks == (0,)
    return rig


def without_appkit(**fields: object) -> Moving:
    """Return a core with job 1, which cannot save itself, on processor 0; it may begin again."""
    rig = Moving()
    rig.submit(1, "1", requeue=True, **fields)  # type: ignore[arg-type]
    rig.up(1)
    return rig


def test_a_job_is_saved_and_continues_on_its_new_processor() -> None:
    rig = running()
    rig.move()
    assert rig.state(1) is S.ADAPTING
    assert rig.job(1).reserved == block(2, 1)
    assert "is being moved from n1 to n2 (n1 is short of memory)" in rig.why()
    rig.wait(3.0)
    rig.saved()
    rig.exit(1)
    assert rig.state(1) is S.STARTING
    assert rig.job(1).ranks == (2,)
    rig.up(1)
    assert rig.state(1) is S.RUNNING
    assert "job.moved" in rig.kinds(1)
    assert any("moved from n1 to n2 in 3.0 s, continues at iteration 40" in t for t in rig.texts(1))
    assert "it was moved from n1 to n2 (n1 is short of memory), which took 3.0 s" in rig.why()


def test_a_job_that_cannot_save_itself_moves_only_with_requeue() -> None:
    for requeue, end in ((None, S.RUNNING), (True, S.COMPLETING)):
        rig = Moving()
        rig.submit(1, "1", requeue=requeue)
        rig.up(1)
        assert view(rig.core.state).running[0].migratable is bool(requeue)
        load = NodeLoad(100.0, 99.0, 900.0, (JobMemory(JOB, 40.0),))
        rig.do(events.NodeLoadMeasured(N1, load, 60.0))
        assert ("cannot be moved" in rig.why()) is not bool(requeue)
        rig.core.state.plan_due = True
        if requeue:
            rig.move()
        assert rig.state(1) is end
        if requeue:
            rig.exit(1, signal=15)
            assert rig.job(1).ranks == (2,)
            rig.up(1)
            assert any("begins again" in text for text in rig.texts(1))


def test_a_refused_save_leaves_the_job_where_it_is_and_frees_the_processor() -> None:
    rig = running()
    rig.move()
    rig.saved(SaveProgress.FAILED, "disk full")
    assert rig.state(1) is S.RUNNING
    assert rig.job(1).reserved == 0
    assert not rig.job(1).is_moving
    assert any("not moved to n2" in text and "disk full" in text for text in rig.texts(1))
    assert not view(rig.core.state).running[0].migratable  # not again at once


def test_the_target_is_lost_while_the_job_is_saved() -> None:
    rig = running()
    rig.move()
    rig.do(events.NodeLost(N2, "silent"))
    assert rig.job(1).reserved == 0
    assert any("not moved to n2: node n2 was lost" in text for text in rig.texts(1))
    rig.saved()
    rig.exit(1)  # it is queued again, and the strategy starts it where a processor is free
    assert rig.state(1) is S.STARTING
    assert rig.job(1).ranks in ((0,), (1,))
    rig.up(1)
    assert "job.moved" not in rig.kinds(1)


def test_the_source_is_lost_while_the_job_is_saved() -> None:
    rig = running()
    rig.move()
    rig.do(events.NodeLost(N1, "silent"))
    assert rig.job(1).reserved == 0
    assert rig.state(1) in (S.NODE_FAIL, S.COMPLETING, S.PENDING, S.STARTING)


@pytest.mark.parametrize("stage", ["ordered", "saved", "gone"])
def test_the_server_restarts_during_a_move(stage: str) -> None:
    rig = running()
    rig.move()
    if stage != "ordered":
        rig.saved()
    if stage == "gone":
        rig.exit(1)
    moving = rig.job(1).relocation
    rig.restart()
    assert rig.job(1).relocation == moving
    assert rig.job(1).reserved == (0 if stage == "gone" else block(2, 1))
    job = rig.job(1)
    here = N2 if stage == "gone" else N1
    live = events.LiveWorld(JOB, job.run, FIRST_START, job.occupied, ready=True)
    for name in (N1, N2):
        rig.do(events.NodeRegistered(name, 2, worlds=(live,) if name == here else ()))
    if stage == "ordered":
        rig.saved()
    if stage != "gone":
        rig.exit(1)
    assert rig.job(1).ranks == (2,)
    assert rig.job(1).reserved == 0


def test_a_cancelled_job_frees_the_processor() -> None:
    rig = running()
    rig.move()
    rig.do(events.JobCancelled(JOB, "ann"))
    assert rig.job(1).reserved == 0
    rig.exit(1)
    assert rig.state(1) is S.CANCELLED


def test_moves_that_do_not_fit_are_refused_and_not_repeated_at_once() -> None:
    rig = running()
    rig.submit(2, "1")
    assert rig.job(2).ranks == (1,)
    rig.mover.moves = [Migration(JOB, block(2, 1))]
    rig.submit(3, "1")  # takes processor 2 in the same plan
    assert rig.job(3).ranks == (2,)
    assert rig.state(1) is S.RUNNING
    assert any("not free" in text for text in rig.texts_of("plan.refused"))
    assert not view(rig.core.state).running[0].migratable
    rig.wait(rig.limits.quiet_s + 1)
    rig.poke()
    assert view(rig.core.state).running[0].migratable


def test_a_users_limit_counts_both_places() -> None:
    rig = running(user_limits=UserLimits(UserLimit(running_processors=1)))
    rig.move()
    assert rig.state(1) is S.RUNNING


def test_a_moving_job_counts_on_its_new_node() -> None:
    rig = running()
    load = NodeLoad(100.0, 99.0, 900.0, (JobMemory(JOB, 40.0), JobMemory(JobId(9), 30.0)))
    rig.do(events.NodeLoadMeasured(N1, load, 60.0))
    rig.do(events.NodeLoadMeasured(N2, NodeLoad(100.0, 10.0), 60.0))
    rig.move()
    loads = view(rig.core.state).loads
    assert (loads[N1].demand, loads[N1].fault_rate, loads[N1].faulting) == (59.0, 0.0, ())
    assert loads[N2].demand == 50.0
    rig.do(events.NodeLoadMeasured(N1, load, 60.0))  # as long as it is still there
    assert view(rig.core.state).loads[N1].demand == 59.0


def test_users_see_reservations_of_nodes() -> None:
    rig = Moving()
    rig.mover.reserved = (NodeReservation(N2, ReservationState.RESERVING, 1.0, "for a large job"),)
    rig.poke()
    assert rig.core.nodes[N2].reservation == "reserving: for a large job"
    assert len(rig.texts_of("node.reserved")) == 1
    rig.poke()
    assert len(rig.texts_of("node.reserved")) == 1
    rig.mover.reserved = ()
    rig.poke()
    assert rig.core.nodes[N2].reservation == ""


# ---------------------------------------------------------------- nothing is lost


@pytest.mark.parametrize("is_shared", [False, None], ids=["not shared", "not known yet"])
def test_a_job_is_not_moved_to_a_node_without_its_checkpoint(is_shared: bool | None) -> None:
    rig = running()
    rig.do(events.NodeRegistered(N2, 2, shares_checkpoints=is_shared))
    rig.move()
    assert rig.state(1) is S.RUNNING
    assert any("without the checkpoint folder" in t for t in rig.texts_of("plan.refused"))


def test_a_job_without_a_checkpoint_moves_to_any_node() -> None:
    rig = without_appkit()
    rig.do(events.CheckpointFolderTested(N2, is_shared=False))
    rig.move()
    rig.exit(1, signal=15)
    assert rig.job(1).ranks == (2,)


def test_a_saved_job_does_not_start_where_its_checkpoint_is_missing() -> None:
    rig = running()
    rig.move()
    rig.saved()
    rig.do(events.CheckpointFolderTested(N2, is_shared=False))
    rig.exit(1)
    assert rig.job(1).ranks in ((0,), (1,))
    assert rig.job(1).reserved == 0
    assert any("not moved to n2: its nodes may not be n2" in text for text in rig.texts(1))


def test_a_job_that_cannot_save_itself_is_moved_only_once() -> None:
    rig = without_appkit()
    rig.move()
    rig.exit(1, signal=15)
    rig.up(1)
    rig.wait(rig.limits.quiet_s + 1)
    assert not view(rig.core.state).running[0].migratable
    rig.move(to=0)
    assert rig.state(1) is S.RUNNING
    load = NodeLoad(100.0, 99.0, 900.0, (JobMemory(JOB, 40.0),))
    rig.do(events.NodeLoadMeasured(N2, load, 600.0))
    assert "it was moved once already" in rig.why()


def test_a_moved_job_is_not_moved_again_at_once() -> None:
    rig = running()
    rig.move()
    rig.saved()
    rig.exit(1)
    rig.up(1)
    rig.register(1, "1")
    assert not view(rig.core.state).running[0].migratable
    rig.wait(rig.limits.quiet_s + 1)
    assert view(rig.core.state).running[0].migratable


def test_processes_that_do_not_end_free_the_new_processor() -> None:
    rig = without_appkit()
    rig.move()
    rig.wait(rig.limits.kill_grace_s + rig.limits.end_deadline_s + 1)
    assert rig.job(1).reserved == 0
    assert any("not moved to n2: its processes do not end" in text for text in rig.texts(1))
    rig.exit(1, signal=9)
    assert rig.state(1) is S.STARTING  # like any queued job


def test_saved_processes_that_do_not_end_free_the_new_processor() -> None:
    rig = running()
    rig.move()
    rig.saved()
    rig.wait(rig.limits.resize_deadline_s + 1)
    assert rig.job(1).reserved == block(2, 1)  # now they are killed
    rig.wait(rig.limits.resize_deadline_s)
    assert rig.job(1).reserved == 0
    assert any("not moved to n2: its processes do not end" in text for text in rig.texts(1))


def test_a_move_continues_when_the_old_processes_on_a_lost_node_have_ended() -> None:
    rig = without_appkit(stop_after_s=30.0)
    rig.move()
    rig.do(events.NodeLost(N1, "silent"))
    rig.mover.is_idle = True  # it is queued, and no plan starts it
    while rig.state(1) is S.COMPLETING:
        rig.wait(1.0)
    assert rig.state(1) is S.STARTING
    assert rig.job(1).ranks == (2,)


@pytest.mark.parametrize(
    ("requeue", "has_checkpoint", "expected"),
    [
        (None, True, S.PENDING),
        (True, False, S.PENDING),
        (None, False, S.FAILED),
        (False, True, S.FAILED),
    ],
)
def test_a_save_without_end_does_not_fail_a_job_that_may_run_again(
    requeue: bool | None, has_checkpoint: bool, expected: S
) -> None:
    rig = Moving()
    rig.submit(1, "1", requeue=requeue)
    rig.up(1)
    rig.register(1, "1")
    if has_checkpoint:
        own = events.SaveReported(JOB, 1, ResizeId(0), SaveProgress.SAVED, iteration=20)
        rig.do(own)
    rig.move()
    rig.saved(SaveProgress.BEGUN)
    rig.wait(rig.limits.save_deadline_s + 1)
    assert rig.job(1).reserved == 0
    rig.mover.is_idle = True
    rig.exit(1, signal=9)
    assert rig.state(1) is expected

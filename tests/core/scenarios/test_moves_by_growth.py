"""A malleable job moves by a growth onto its new processor, and then gives up the old one."""

from __future__ import annotations

import pytest

from corekit.moving import JOB, N1, N2, Moving
from pliant.core import events
from pliant.core.commands import SendSuspend
from pliant.core.model.lifecycle import JobState as S
from pliant.core.model.negotiation import Verb
from pliant.core.model.nodes import JobMemory, NodeLoad
from pliant.core.model.resize import ResizeStage
from pliant.core.state.views import view
from pliant.core.values.ids import FIRST_START, JobId
from pliant.core.values.processors import block


def malleable(sizes: str = "1-2") -> Moving:
    """Return a core with the malleable job 1 on processor 0."""
    rig = Moving()
    rig.run(1, sizes)
    assert rig.job(1).ranks == (0,)
    return rig


def growing() -> Moving:
    """Return a core whose job 1 is being moved to processor 2, and was offered a growth."""
    rig = malleable()
    rig.move()
    assert rig.resize(1).after == (0, 2)
    return rig


def leaving() -> Moving:
    """Return a core whose job 1 has grown, and was offered to give up its old processor."""
    rig = growing()
    rig.grow_to_go(1)
    rig.finish(1)
    assert rig.resize(1).after == (2,)
    return rig


def test_the_job_grows_onto_its_new_processor_and_gives_up_the_old_one() -> None:
    rig = growing()
    assert "is being moved from n1 to n2 (n1 is short of memory), by growth" in rig.why()
    rig.wait(1.0)
    rig.grow_to_go(1)
    rig.finish(1)
    assert rig.job(1).ranks == (0, 2)
    rig.wait(1.0)
    rig.shrink_to_go(1)
    rig.finish(1)
    assert (rig.job(1).ranks, rig.job(1).run, rig.job(1).occupied) == ((2,), 1, block(2, 1))
    assert not rig.job(1).is_moving
    (note,) = (note for note in rig.notes if note.kind == "job.moved")
    assert (note.data["by"], note.data["seconds"], note.data["targets"]) == ("growth", 2.0, ["n2"])
    assert "it was moved from n1 to n2 (n1 is short of memory), which took 2.0 s" in rig.why()
    assert not view(rig.core.state).running[0].migratable  # not again at once
    assert not rig.take(SendSuspend)


def test_the_bytes_of_both_resizes_are_reported() -> None:
    rig = growing()
    for moved in (30, 12):
        rig.answer(1, Verb.ACCEPT)
        rig.ready(1) if rig.resize(1).grows else rig.stand_by(1)
        job, resize = rig.job(1), rig.resize(1)
        rig.begin(1)
        decided = events.ResizeDecided(
            JOB, job.run, resize.id, True, job.epoch + 1, resize.after, bytes_moved=moved
        )
        rig.do(decided)
    rig.exit(1, 0)
    (note,) = (note for note in rig.notes if note.kind == "job.moved")
    assert note.data["bytes"] == 42


def test_a_job_that_cannot_grow_is_saved_instead() -> None:
    for sizes in ("1", "{1,3}"):
        rig = malleable(sizes)
        rig.move()
        assert rig.job(1).saving is not None
        assert rig.job(1).resize is None


def test_a_job_whose_growth_failed_is_saved_at_the_next_move() -> None:
    rig = growing()
    rig.answer(1, Verb.REJECT)
    assert rig.job(1).ranks == (0,)
    assert not rig.job(1).is_moving
    assert any("not moved to n2: it did not grow" in text for text in rig.texts(1))
    rig.wait(rig.limits.quiet_s + 1)
    rig.move()
    assert rig.job(1).saving is not None


def test_no_checkpoint_folder_is_necessary() -> None:
    rig = malleable()
    for name in (N1, N2):
        rig.do(events.CheckpointFolderTested(name, is_shared=False))
    rig.move()
    assert rig.resize(1).grows


def test_a_job_that_refuses_to_leave_is_asked_again() -> None:
    rig = leaving()
    rig.answer(1, Verb.REJECT)
    assert (rig.job(1).ranks, rig.job(1).resize) == ((0, 2), None)
    assert rig.job(1).is_moving
    rig.wait(rig.limits.quiet_s + 1)
    assert rig.resize(1).after == (2,)
    rig.shrink_to_go(1)
    rig.finish(1)
    assert "job.moved" in rig.kinds(1)


def test_a_lost_or_drained_target_ends_the_move() -> None:
    rig = growing()
    rig.do(events.NodeLost(N2, "silent"))
    assert (rig.state(1), rig.job(1).ranks, rig.job(1).is_moving) == (S.RUNNING, (0,), False)
    rig = growing()
    rig.do(events.NodeDrained(N2, "ann", 1))
    assert (rig.state(1), rig.job(1).ranks, rig.job(1).is_moving) == (S.RUNNING, (0,), False)
    rig = leaving()
    rig.do(events.NodeLost(N2, "silent"))
    assert not rig.job(1).is_moving


@pytest.mark.parametrize("stage", ["offered", "leaving"])
def test_the_user_cancels_or_suspends_the_job(stage: str) -> None:
    rig = growing() if stage == "offered" else leaving()
    rig.do(events.JobSuspended(JOB, "ann", 1))
    assert rig.job(1).saving is not None
    assert any("not moved to n2" in text for text in rig.texts(1))
    rig = growing() if stage == "offered" else leaving()
    rig.do(events.JobCancelled(JOB, "ann"))
    rig.exit(1)
    assert rig.state(1) is S.CANCELLED
    assert rig.free() == block(0, 4)


def test_an_operator_who_fixes_the_size_ends_the_move() -> None:
    rig = leaving()
    rig.answer(1, Verb.REJECT)
    rig.ask_for(1, 1, release=[2])
    assert rig.job(1).size_fixed_by_operator
    rig.shrink_to_go(1)
    rig.finish(1)
    assert (rig.job(1).ranks, rig.job(1).is_moving) == ((0,), False)


@pytest.mark.parametrize("stage", ["offered", "leaving"])
def test_the_server_restarts_during_the_move(stage: str) -> None:
    rig = growing() if stage == "offered" else leaving()
    moving = rig.job(1).relocation
    rig.restart()
    assert rig.job(1).relocation == moving
    for name, first in ((N1, 0), (N2, 2)):
        held = rig.job(1).occupied & block(first, 2)
        live = events.LiveWorld(JOB, 1, FIRST_START, held, ready=True)
        rig.do(events.NodeRegistered(name, 2, worlds=(live,) if held else ()))
    rig.register(1, "1-2")
    rig.settle()
    rig.wait(rig.limits.quiet_s + 1)
    rig.settle()
    assert not rig.job(1).is_moving
    assert rig.job(1).ranks == (0,) or "job.moved" in rig.kinds(1)


def test_the_moving_job_counts_on_its_new_node() -> None:
    rig = malleable()
    load = NodeLoad(100.0, 99.0, 900.0, (JobMemory(JOB, 40.0), JobMemory(JobId(9), 30.0)))
    rig.do(events.NodeLoadMeasured(N1, load, 60.0))
    rig.do(events.NodeLoadMeasured(N2, NodeLoad(100.0, 10.0), 60.0))
    rig.move()
    rig.grow_to_go(1)
    for _ in range(2):
        loads = view(rig.core.state).loads
        assert (loads[N1].demand, loads[N1].fault_rate, loads[N1].faulting) == (59.0, 0.0, ())
        assert loads[N2].demand == 50.0
        rig.do(events.NodeLoadMeasured(N1, load, 60.0))  # as long as it is still there
    assert rig.stage(1) is ResizeStage.GO

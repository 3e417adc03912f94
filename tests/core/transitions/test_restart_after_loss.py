"""Who loses a node and can go on elsewhere does so at once, on what is left to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corekit.rig import LIMITS, Rig
from pliant.core import commands, events
from pliant.core.events import LiveWorld
from pliant.core.job_explanation import explain
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.lifecycle import JobState as S
from pliant.core.model.resize import ResizeStage
from pliant.core.state.json_records import job_from_record, job_to_record
from pliant.core.values.ids import FIRST_START, JobId, NodeName, ResizeId
from pliant.core.values.processors import NONE, ProcessorMap, block, from_indices

N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")


def saved(rig: Rig, iteration: int = 40) -> None:
    job = rig.job(1)
    said = events.SaveReported(
        job.id, job.run, ResizeId(0), SaveProgress.SAVED, iteration=iteration
    )
    rig.do(said)


def running(
    sizes: str = "2-8",
    *,
    requeue: bool | None = None,
    checkpoint: bool = True,
    stop_after_s: float | None = None,
) -> Rig:
    """Job 1 runs on all processors of three nodes; jobs 2 and 3 want whatever comes free."""
    rig = Rig({"n1": 3, "n2": 2, "n3": 3}, "fcfs")
    rig.submit(1, sizes, requeue=requeue, stop_after_s=stop_after_s)
    rig.up(1)
    rig.register(1, sizes)
    if checkpoint:
        saved(rig)
    rig.submit(2, "1")
    rig.submit(3, "8")
    rig.sent.clear()
    assert (rig.job(1).size, rig.state(2), rig.free()) == (8, S.PENDING, NONE)
    return rig


def lose(rig: Rig, node: NodeName, how: str = "lost") -> None:
    if how == "lost":
        rig.do(events.NodeLost(node, "silent"))
    else:  # it was booted anew
        rig.do(events.NodeRegistered(node, rig.core.nodes[node].slots))


def here(rig: Rig, node: NodeName) -> ProcessorMap:
    return rig.core.nodes[node].processors


def standing(rig: Rig) -> tuple[S, int, int]:
    job = rig.job(1)
    return job.state, job.run, job.size


@pytest.mark.parametrize(("node", "size"), [(N1, 5), (N2, 6), (N3, 5)], ids=["rank-0", "n2", "n3"])
def test_it_goes_on_where_its_processes_were_as_soon_as_they_are_gone(
    node: NodeName, size: int
) -> None:
    rig = running()
    lose(rig, node)
    assert (rig.state(1), rig.state(2)) == (S.COMPLETING, S.PENDING)
    assert rig.one(commands.Kill).grace_s == LIMITS.kill_grace_s
    *most, last = [p for p in range(8) if not here(rig, node) >> p & 1]
    rig.exit(1, *most, signal=15)
    assert (rig.state(2), rig.free()) == (S.PENDING, NONE)  # kept
    rig.exit(1, last, signal=15)
    assert standing(rig) == (S.STARTING, 2, size)
    assert rig.job(1).allocation == from_indices([*most, last])
    assert (rig.job(1).size_before_loss, rig.job(1).reserved, rig.state(2)) == (0, NONE, S.PENDING)
    launch = rig.one(commands.Launch)
    assert (launch.run, launch.processors) == (2, tuple(sorted([*most, last])))


def test_the_history_says_what_became_of_it() -> None:
    rig = running()
    lose(rig, N2)
    why = explain(rig.core, JobId(1), rig.now)
    assert "6 of its 8 processors are kept for it until its processes have ended" in " ".join(why)
    rig.exit(1)
    told = [note for note in rig.notes if note.kind == "job.survived"]
    assert [note.text for note in told] == ["restarts on 6 of its 8 processors, from iteration 40"]
    assert told[0].data == {"lost": ["n2"], "size": 6, "iteration": 40, "from": 8}
    assert "is restarted at once: node n2 was lost: silent" in rig.texts(1)
    assert rig.kinds(1)[-4:] == ["processors.released", "job.queued", "job.survived", "job.started"]


@pytest.mark.parametrize(
    ("sizes", "requeue", "checkpoint", "end"),
    [
        ("2-8", None, True, S.STARTING),
        ("2-8", True, False, S.STARTING),
        ("2-8", True, True, S.STARTING),
        ("2-8", None, False, S.NODE_FAIL),
        ("2-8", False, True, S.NODE_FAIL),
        ("8", None, True, S.NODE_FAIL),
        ("8", True, True, S.PENDING),
        ("7-8", True, True, S.PENDING),
    ],
)
@pytest.mark.parametrize("failed_first", [False, True])
def test_who_goes_on_who_waits_and_who_ends(
    *, sizes: str, requeue: bool | None, checkpoint: bool, end: S, failed_first: bool
) -> None:
    rig = running(sizes, requeue=requeue, checkpoint=checkpoint)
    rig.do(events.JobCancelled(JobId(2)), events.JobCancelled(JobId(3)))
    if failed_first:  # the others notice before the lease runs out
        rig.exit(1, 0, 1, 2, 5, 6, 7, code=1)
        assert rig.state(1) is S.COMPLETING
        lose(rig, N2)
        end = S.FAILED if end is S.NODE_FAIL else end
        assert end is S.FAILED or "node n2 was lost" in " ".join(rig.texts(1))
    else:
        lose(rig, N2)
        rig.exit(1, 0, 1, 2, 5, 6, 7, signal=15)
    assert rig.state(1) is end
    assert rig.free() == (NONE if end is S.STARTING else here(rig, N1) | here(rig, N3))
    if end is S.STARTING:
        assert rig.job(1).size == 6


def test_without_a_checkpoint_it_goes_on_from_the_start() -> None:
    rig = running(requeue=True, checkpoint=False)
    lose(rig, N2)
    rig.exit(1)
    assert "restarts on 6 of its 8 processors, from the start" in rig.texts(1)


def test_what_fails_first_is_kept_while_a_node_may_be_lost_and_no_longer() -> None:
    rig = running()
    rig.exit(1, 0, 1, 2, 5, 6, 7, code=1)
    assert (rig.state(2), rig.free()) == (S.PENDING, NONE)
    rig.do(events.NodeSuspected(N2))
    rig.do(events.NodeRecovered(N2))
    assert rig.state(2) is S.PENDING
    rig.exit(1, 3, 4, code=1)
    assert (rig.state(1), rig.state(2)) == (S.FAILED, S.STARTING)
    assert not rig.core.state.reserved()


def test_processes_that_do_not_end_keep_nothing_from_others() -> None:
    rig = running()
    lose(rig, N2)
    rig.exit(1, 0, 1, 2, 5, 6, signal=15)
    rig.wait(LIMITS.kill_grace_s + LIMITS.end_deadline_s)
    assert (rig.state(1), rig.state(2)) == (S.COMPLETING, S.STARTING)
    rig.exit(1, 7, signal=9)
    assert standing(rig) == (S.STARTING, 2, 5)  # as any job: n3 is back, and job 2 has a place


def test_a_node_that_was_booted_anew_is_there_for_it() -> None:
    rig = running()
    lose(rig, N1, "booted")
    rig.exit(1)
    assert standing(rig) == (S.STARTING, 2, 8)
    assert "restarts on all 8, from iteration 40" in rig.texts(1)


@pytest.mark.parametrize(
    ("when", "what"),
    [
        ("ending", "lost"),
        ("ending", "drained"),  # nobody removes a node that is in use
        ("silent", "lost"),
        ("silent", "drained"),
        ("silent", "removed"),
    ],
)
def test_what_is_taken_in_between_is_left_out(when: str, what: str) -> None:
    rig = running()
    lose(rig, N2)
    if when == "silent":
        rig.do(events.NodeSuspected(N3))
        rig.exit(1)
        assert (rig.state(1), rig.job(1).run, rig.free()) == (S.PENDING, 2, NONE)
        why = explain(rig.core, JobId(1), rig.now)
        assert "6 processors kept for it: it starts when all are free" in why
    if what == "lost":
        lose(rig, N3)
    elif what == "drained":
        rig.do(events.NodeDrained(N3, "repair"))
    else:
        rig.do(events.NodeRemoved(N3))
    if when == "ending":
        rig.exit(1)
    assert standing(rig) == (S.STARTING, 2, 3)
    assert rig.job(1).allocation == here(rig, N1)
    assert "restarts on 3 of its 8 processors, from iteration 40" in rig.texts(1)


def test_a_silent_node_that_comes_back_is_waited_for() -> None:
    rig = running()
    lose(rig, N2)
    rig.do(events.NodeSuspected(N3))
    rig.exit(1)
    rig.do(events.NodeRecovered(N3))
    assert standing(rig) == (S.STARTING, 2, 6)


def test_when_too_little_is_left_in_the_end_it_waits_like_others() -> None:
    rig = running("4-8")
    lose(rig, N2)
    rig.do(events.NodeSuspected(N3))
    rig.exit(1)
    lose(rig, N3)
    assert (rig.state(1), rig.job(1).size_before_loss, rig.job(1).reserved) == (S.PENDING, 0, NONE)
    assert rig.state(2) is S.STARTING
    lose(rig, N3, "back")
    assert standing(rig)[:2] == (S.STARTING, 2)


@pytest.mark.parametrize("when", ["ending", "failed", "waiting"])
def test_a_cancellation_in_between_is_the_end(when: str) -> None:
    rig = running()
    if when == "failed":
        rig.exit(1, 0, 1, 2, 5, 6, 7, code=1)
    else:
        lose(rig, N2)
    if when == "waiting":
        rig.do(events.NodeSuspected(N3))
        rig.exit(1)
    rig.do(events.JobCancelled(JobId(1)))
    assert rig.job(1).reserved == NONE
    if when == "failed":
        lose(rig, N2)
    elif when == "ending":
        rig.exit(1)
    assert (rig.state(1), rig.job(1).run) == (S.CANCELLED, 2 if when == "waiting" else 1)
    assert rig.state(2) is S.STARTING


def test_a_hold_in_between_gives_everything_back() -> None:
    rig = running()
    lose(rig, N2)
    rig.do(events.NodeSuspected(N3))
    rig.exit(1)
    rig.do(events.JobHeld(JobId(1)))
    assert (rig.state(1), rig.job(1).size_before_loss, rig.state(2)) == (S.HELD, 0, S.STARTING)
    rig.do(events.JobReleased(JobId(1)))
    assert standing(rig)[:2] == (S.STARTING, 2)


@pytest.mark.parametrize(("stored", "again"), [(False, False), (True, True), (None, None)])
def test_what_was_said_before_there_was_a_choice_still_holds(
    *, stored: bool | None, again: bool | None
) -> None:
    record = job_to_record(running().job(1)) | {"requeue": stored}
    del record["had"]
    job = job_from_record(record)
    assert (job.spec.requeue, job.size_before_loss) == (again, 0)


@pytest.mark.parametrize("when", ["ending", "silent"])
def test_it_outlives_a_restart_of_the_server(when: str) -> None:
    rig = running()
    lose(rig, N2)
    if when == "silent":
        rig.do(events.NodeSuspected(N3))
        rig.exit(1)
    kept = rig.job(1).reserved
    rig.restart()
    assert (rig.job(1).reserved, rig.job(1).size_before_loss) == (kept, 8)
    worlds = [LiveWorld(JobId(1), 1, ResizeId(0), here(rig, node), True) for node in (N1, N3)]
    for node, world in zip((N1, N3), worlds, strict=True):
        here_now = (world,) if when == "ending" else ()
        rig.do(events.NodeRegistered(node, 3, worlds=here_now))
    if when == "ending":
        assert rig.state(1) is S.COMPLETING
        rig.exit(1)
    assert standing(rig) == (S.STARTING, 2, 6)
    assert rig.state(2) is S.PENDING


def test_a_lost_node_that_is_back_in_time_counts_again_when_it_is_empty() -> None:
    rig = running()
    lose(rig, N2)
    old = LiveWorld(JobId(1), 1, ResizeId(0), here(rig, N2), True)
    rig.do(events.NodeRegistered(N2, 2, worlds=(old,)))
    assert rig.job(1).reserved == here(rig, N1) | here(rig, N3)
    lose(rig, N2, "empty")
    assert rig.job(1).reserved == block(0, 8)
    rig.exit(1)
    assert standing(rig) == (S.STARTING, 2, 8)


def test_its_next_run_may_lose_a_node_before_it_has_registered() -> None:
    rig = running()
    lose(rig, N2)
    rig.exit(1)
    lose(rig, N3)
    rig.exit(1, run=2)
    assert standing(rig) == (S.STARTING, 3, 3)
    rig.do(events.WorldReady(JobId(1), 3, FIRST_START, N1))
    rig.register(1, "2-8")
    assert rig.job(1).malleable


def offered(rig: Rig) -> None:
    rig.ask_for(1, 4)


def gone(rig: Rig) -> None:
    offered(rig)
    rig.shrink_to_go(1)


def begun(rig: Rig) -> None:
    gone(rig)
    rig.begin(1)


def releasing(rig: Rig) -> None:
    begun(rig)
    rig.decide(1)
    assert rig.stage(1) is ResizeStage.RELEASING


def suspending(rig: Rig) -> None:
    rig.do(events.JobSuspended(JobId(1)))


@pytest.mark.parametrize("way", [offered, gone, begun, releasing, suspending])
def test_a_loss_in_the_middle_of_something(way: Callable[[Rig], None]) -> None:
    rig = running("1-8")
    way(rig)
    had = rig.job(1).allocation
    lose(rig, N1)
    assert (rig.state(1), rig.job(1).resize, rig.job(1).saving) == (S.COMPLETING, None, None)
    rig.exit(1)
    left = had & ~here(rig, N1)
    assert (rig.job(1).run, rig.job(1).allocation, rig.job(1).occupied) == (2, left, left)


def test_a_growth_that_is_under_way_is_not_kept() -> None:
    rig = Rig({"n1": 2, "n2": 2, "n3": 2})
    rig.submit(9, "3", held=True)
    rig.run(1, "2-6")
    saved(rig)
    rig.ask_for(1, 4)
    rig.shrink_to_go(1)
    rig.finish(1)
    rig.ask_for(1, 6)
    rig.grow_to_go(1)
    lose(rig, N1)
    assert rig.job(1).reserved == here(rig, N2)
    rig.exit(1)
    assert rig.job(1).allocation == here(rig, N2)
    assert rig.free() == here(rig, N3)


def test_nothing_is_kept_for_long_for_who_must_wait_for_a_node_that_is_cut_off() -> None:
    rig = running(stop_after_s=1000.0)
    lose(rig, N2)
    rig.exit(1)
    assert (rig.state(1), rig.state(2)) == (S.COMPLETING, S.PENDING)
    rig.wait(LIMITS.kill_grace_s + LIMITS.end_deadline_s)
    assert (rig.state(1), rig.state(2), rig.job(1).size_before_loss) == (
        S.COMPLETING,
        S.STARTING,
        0,
    )
    rig.wait(1100)
    assert rig.job(1).run == 2


def test_who_waits_a_little_for_such_a_node_finds_what_was_kept() -> None:
    rig = running(stop_after_s=1.0)
    lose(rig, N2)
    rig.exit(1)
    assert (rig.state(1), rig.free()) == (S.COMPLETING, NONE)
    rig.wait(30)
    assert (*standing(rig), rig.state(2)) == (S.STARTING, 2, 6, S.PENDING)

"""Jobs that are not to run twice at a time wait for what lives on a node that was lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.rig import LIMITS, Rig
from pliant.core import commands, events
from pliant.core.events import LiveWorld
from pliant.core.job_explanation import explain
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.jobs import Exit
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import FIRST_START, JobId, NodeName
from pliant.core.values.lost_contact_policy import MARGIN_S
from pliant.core.values.processors import ProcessorMap, block, from_indices

N1, N2 = NodeName("n1"), NodeName("n2")
STOP_S, LEASE_S = 30.0, 20.0
#: From the loss of the node on: what the user grants, TERM and KILL, and what clocks and ends need.
LEAST_S = STOP_S + LIMITS.kill_grace_s + MARGIN_S


@pytest.fixture
def rig() -> Rig:
    """Job 1 runs on n1, and is to stop there when it is cut off."""
    rig = Rig({"n1": 4, "n2": 4}, limits=replace(LIMITS, lease_s=LEASE_S))
    rig.submit(1, "4", requeue=True, stop_after_s=STOP_S)
    rig.up(1)
    assert rig.job(1).allocation == block(0, 4)
    return rig


def lose(rig: Rig, node: NodeName = N1) -> None:
    rig.do(events.NodeLost(node, "gone"))


def back(rig: Rig, live: ProcessorMap = 0) -> None:
    worlds = (LiveWorld(JobId(1), 1, FIRST_START, live, True),) if live else ()
    rig.do(events.NodeRegistered(N1, 4, worlds=worlds))


def why(rig: Rig) -> str:
    return "\n".join(explain(rig.core, JobId(1), rig.now))


def test_another_run_waits_until_the_processes_have_ended_by_themselves(rig: Rig) -> None:
    lose(rig)
    assert (rig.state(1), rig.job(1).run) == (JobState.COMPLETING, 1)
    assert "surely gone in 40 s, no other run starts before" in why(rig)
    assert "job.cut_off" in rig.kinds(1)
    rig.wait(LEAST_S)
    assert rig.state(1) is JobState.COMPLETING
    rig.wait(1.0)
    assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, 2)
    assert rig.job(1).allocation == block(4, 4)
    assert "surely gone" not in why(rig)


def test_a_job_that_keeps_its_processes_starts_again_at_once() -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(1, "4", requeue=True)
    rig.up(1)
    lose(rig)
    assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, 2)


def test_a_node_that_comes_back_with_nothing_ends_the_wait(rig: Rig) -> None:
    lose(rig)
    rig.wait(3.0)
    back(rig)
    assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, 2)


def test_what_a_node_brings_back_must_have_ended(rig: Rig) -> None:
    lose(rig)
    back(rig, block(0, 4))
    rig.wait(10 * LEAST_S)  # its lease was renewed: the time from the loss on says nothing now
    assert rig.state(1) is JobState.COMPLETING
    assert "node n1 is back and ends its processes" in why(rig)
    rig.exit(1, 0, 1, signal=9)
    assert rig.state(1) is JobState.COMPLETING
    rig.exit(1, 2, 3, signal=9)
    assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, 2)


def test_a_node_that_is_lost_again_is_waited_for_again(rig: Rig) -> None:
    lose(rig)
    rig.wait(LEAST_S - 1.0)
    back(rig, block(0, 4))
    lose(rig)
    rig.wait(LEAST_S)
    assert rig.state(1) is JobState.COMPLETING
    rig.wait(1.0)
    assert rig.job(1).run == 2


def test_a_restarted_server_waits_as_long_again(rig: Rig) -> None:
    lose(rig)
    rig.wait(LEAST_S - 1.0)
    rig.restart()
    rig.do(events.NodeRegistered(N2, 4))
    rig.wait(LEAST_S)
    assert rig.state(1) is JobState.COMPLETING
    rig.wait(1.0)
    assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, 2)


def test_a_restarted_server_waits_for_what_a_node_was_ending(rig: Rig) -> None:
    lose(rig)
    back(rig, block(0, 4))
    rig.restart()
    rig.wait(10 * LEAST_S)
    assert rig.state(1) is JobState.COMPLETING
    assert "has not reported yet" in why(rig)
    back(rig, block(0, 1))
    assert rig.state(1) is JobState.COMPLETING
    rig.exit(1, 0, signal=9)
    assert rig.job(1).run == 2


def test_a_server_with_a_shorter_lease_remembers_the_longer_one(rig: Rig) -> None:
    rig.limits = replace(rig.limits, lease_s=1.0)
    rig.restart()
    lose(rig)
    rig.wait(LEASE_S - 1.0 + LEAST_S)
    assert rig.state(1) is JobState.COMPLETING
    rig.wait(1.0)
    assert rig.job(1).run == 2


def test_a_server_with_a_longer_lease_knows_that_nodes_wait_longer(rig: Rig) -> None:
    rig.limits = replace(rig.limits, lease_s=3 * LEASE_S)
    rig.restart()
    lose(rig)
    rig.wait(LEAST_S)
    assert rig.state(1) is JobState.COMPLETING
    rig.wait(1.0)
    assert rig.job(1).run == 2


def test_who_has_no_further_run_ends_at_once_and_can_be_cancelled_while_it_waits(rig: Rig) -> None:
    rig.submit(2, "4", stop_after_s=STOP_S)
    rig.up(2)
    lose(rig)
    lose(rig, N2)
    assert rig.state(2) is JobState.NODE_FAIL
    rig.do(events.JobCancelled(JobId(1)))
    assert rig.state(1) is JobState.CANCELLED
    rig.wait(2 * LEAST_S)


def test_a_node_that_its_operator_removes_is_not_waited_for(rig: Rig) -> None:
    lose(rig)
    rig.do(events.NodeRemoved(N1))
    assert rig.job(1).run == 2


def test_what_a_node_ended_for_want_of_a_server_is_a_lost_node(rig: Rig) -> None:
    """Its node comes back before it is missed, as when the server was away."""
    reason = "cut off from the server for 50 s (stop-after=30)"
    exits = tuple(Exit(each, 0, 15, reason, cut_off=True) for each in range(4))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, exits))
    assert rig.job(1).run == 2
    assert f"{reason}, on n1/0" in "\n".join(rig.texts(1))


def test_others_that_notice_first_do_not_keep_it_from_another_run() -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(1, "8", requeue=True, stop_after_s=STOP_S)
    rig.up(1)
    rig.exit(1, 4, 5, 6, 7, code=1)
    assert rig.state(1) is JobState.COMPLETING
    exits = tuple(Exit(each, 0, 0, "cut off", cut_off=True) for each in range(4))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, exits))
    assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, 2)


@pytest.mark.parametrize("requeue", [True, False])
def test_ranks_that_ended_with_their_shim_count_as_lost_with_their_node(requeue: bool) -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(1, "8", requeue=requeue)
    rig.up(1)
    rig.exit(1, 4, 5, 6, 7, code=1)  # MPI has noticed the loss first
    exits = tuple(Exit(p, 1, 0, "its shim was killed", shim_lost=True) for p in range(4))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, exits))
    assert (rig.state(1), rig.job(1).run) == (
        (JobState.STARTING, 2) if requeue else (JobState.FAILED, 1)
    )


def test_a_job_without_requeue_whose_shims_were_all_killed_ends_as_node_fail() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "4")
    rig.up(1)
    exits = tuple(Exit(p, 1, 0, "its shim was killed", shim_lost=True) for p in range(4))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, exits))
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.NODE_FAIL, None)
    assert rig.job(1).reason == "its shim was killed on n1/0"


def test_the_reason_names_the_stage_of_the_resize_in_which_a_shim_was_killed() -> None:
    rig = Rig({"n1": 4})
    rig.run(1, "2-4")
    rig.ask_for(1, 2)
    rig.shrink_to_go(1)
    exits = tuple(Exit(p, 1, 0, "its shim was killed", shim_lost=True) for p in range(4))
    rig.do(events.ProcessesExited(JobId(1), 1, FIRST_START, exits))
    assert rig.state(1) is JobState.NODE_FAIL
    assert rig.job(1).reason == "its shim was killed on n1/0 in resize 1 (stage go)"


def lose_shim(rig: Rig) -> None:
    """Let all processes of job 1 end with their shim."""
    rig.up(1)
    exits = tuple(Exit(p, 1, 0, "its shim was killed", shim_lost=True) for p in range(4))
    rig.do(events.ProcessesExited(JobId(1), rig.job(1).run, FIRST_START, exits))


def test_a_job_that_loses_its_shim_in_each_run_does_not_run_again_without_end() -> None:
    rig = Rig({"n1": 4}, limits=replace(LIMITS, max_restarts=2))
    rig.submit(1, "4", requeue=True)
    for run in (2, 3):
        lose_shim(rig)
        assert (rig.state(1), rig.job(1).run) == (JobState.STARTING, run)
        rig.restart()
        live = LiveWorld(JobId(1), run, FIRST_START, rig.job(1).occupied, True)
        rig.do(events.NodeRegistered(N1, 4, worlds=(live,)))
    lose_shim(rig)
    assert rig.state(1) is JobState.NODE_FAIL
    assert "max_restarts" in rig.job(1).reason


def test_a_requeue_by_the_user_allows_new_restarts() -> None:
    rig = Rig({"n1": 4}, limits=replace(LIMITS, max_restarts=1))
    rig.submit(1, "4", requeue=True)
    lose_shim(rig)
    rig.do(events.JobRequeued(JobId(1), "ann", 1))
    rig.exit(1, 0, 1, 2, 3, signal=9)
    lose_shim(rig)
    assert rig.state(1) is JobState.STARTING


def test_a_saved_job_is_suspended_when_nothing_of_it_is_left_on_a_lost_node() -> None:
    rig = Rig({"n1": 4, "n2": 4}, limits=replace(LIMITS, lease_s=LEASE_S))
    rig.submit(1, "4-8", stop_after_s=60.0)
    rig.up(1)
    rig.register(1, "4-8")
    rig.do(events.JobSuspended(JobId(1), "ann", 7))
    saving = rig.job(1).saving
    assert saving is not None
    for word in (SaveProgress.BEGUN, SaveProgress.SAVED):
        rig.do(events.SaveReported(JobId(1), 1, saving.number, word, "", iteration=1))
    rig.exit(1, 4, 5, 6, 7)
    lose(rig)
    assert (rig.state(1), rig.job(1).occupied) == (JobState.ADAPTING, 0)
    rig.take(commands.Kill)
    rig.wait(60.0 + LIMITS.kill_grace_s + MARGIN_S)
    assert rig.state(1) is JobState.ADAPTING
    assert not rig.take(commands.Kill)
    rig.wait(1.0)
    assert rig.state(1) is JobState.SUSPENDED


@pytest.mark.parametrize("stop_after_s", [None, STOP_S])
def test_nobody_gets_the_processors_of_a_lost_node_before_it_reports(
    stop_after_s: float | None,
) -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.submit(1, "4", stop_after_s=stop_after_s)
    rig.up(1)
    lose(rig)
    rig.submit(2, "4")
    rig.submit(3, "1-4")
    rig.wait(100 * LEAST_S)
    assert rig.job(2).allocation == block(4, 4)
    assert rig.state(3) is JobState.PENDING
    back(rig, from_indices([2]))
    assert rig.job(3).allocation == from_indices([0, 1, 3])

"""A job with a checkpoint starts only on nodes that share the folder of checkpoints."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.job_explanation import explain
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.lifecycle import JobState as S
from pliant.core.values.ids import JobId, NodeName, ResizeId

N1, N2 = NodeName("n1"), NodeName("n2")


def report(rig: Rig, node: NodeName, *, is_shared: bool) -> None:
    rig.do(events.CheckpointFolderTested(node, is_shared))


def save(rig: Rig, number: int = 0) -> None:
    job = rig.job(1)
    rig.do(events.SaveReported(job.id, job.run, ResizeId(number), SaveProgress.SAVED, iteration=40))


def suspended(nodes: dict[str, int], strategy: str = "fcfs") -> Rig:
    """Return a core with job 1, which runs on two processors of n1, and is suspended."""
    rig = Rig(nodes, strategy)
    rig.run(1, "2")
    rig.do(events.JobSuspended(JobId(1), "ann", 7))
    save(rig, rig.job(1).saving.number)  # type: ignore[union-attr]
    rig.exit(1)
    assert rig.state(1) is S.SUSPENDED
    return rig


def resume(rig: Rig) -> None:
    rig.do(events.JobResumed(JobId(1), "ann", 7))


@pytest.mark.parametrize("strategy", ["fcfs", "equipartition", "fcfs+easy"])
@pytest.mark.parametrize("known", [False, None], ids=["not shared", "not known yet"])
def test_a_saved_job_waits_for_a_node_that_shares_the_folder(
    strategy: str, known: bool | None
) -> None:
    rig = suspended({"n1": 2}, strategy)
    rig.do(events.NodeLost(N1, "silent"))
    rig.do(events.NodeRegistered(N2, 2, shares_checkpoints=known))
    resume(rig)
    assert rig.state(1) is S.PENDING
    assert "folder of its checkpoint" in "\n".join(explain(rig.core, JobId(1), rig.now))
    rig.submit(2, "2")  # has no checkpoint, so any node is good
    assert rig.state(2) is S.STARTING
    rig.exit(2)
    assert rig.state(1) is S.PENDING
    report(rig, N2, is_shared=True)
    assert (rig.state(1), rig.job(1).run) == (S.STARTING, 2)


def test_other_nodes_are_used_if_one_does_not_share_the_folder() -> None:
    rig = suspended({"n1": 2, "n2": 2})
    report(rig, N1, is_shared=False)
    resume(rig)
    assert rig.core.state.node_names(rig.job(1).occupied) == [N2]


def test_the_restart_after_a_loss_avoids_nodes_without_the_folder() -> None:
    rig = Rig({"n1": 2, "n2": 2}, "fcfs")
    rig.run(1, "1-4")
    save(rig)
    report(rig, N2, is_shared=False)
    rig.do(events.NodeLost(N1, "silent"))
    rig.exit(1)
    assert rig.state(1) is S.PENDING
    report(rig, N2, is_shared=True)
    assert rig.state(1) is S.STARTING


def test_a_checkpoint_on_a_node_without_the_folder_does_not_count() -> None:
    rig = Rig({"n1": 2}, "fcfs")
    report(rig, N1, is_shared=False)
    rig.run(1, "2")
    save(rig)
    assert rig.job(1).checkpoint is None
    assert any("unusable" in text for text in rig.texts(1))
    rig.do(events.JobSuspended(JobId(1), "ann", 7))
    assert "n1" in rig.one(commands.AnswerUser).refusal
    report(rig, N1, is_shared=True)
    save(rig)
    assert rig.job(1).checkpoint is not None


def test_a_server_that_starts_again_waits_for_the_reports_of_the_nodes() -> None:
    rig = suspended({"n1": 2})
    for node in rig.core.nodes.values():
        node.shares_checkpoints = None
        rig.core.state.put_node(node)
    resume(rig)
    assert rig.state(1) is S.PENDING
    report(rig, N1, is_shared=True)
    assert rig.state(1) is S.STARTING

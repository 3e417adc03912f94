"""A script with several processors: it runs on the first, and the nodes hold the others for it."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import commands
from pliant.core.model.jobs import JobType
from pliant.core.model.lifecycle import JobState


@pytest.fixture
def rig() -> Rig:
    rig = Rig({"n1": 2, "n2": 2}, strategy="fcfs")
    rig.submit(1, "4", type=JobType.SCRIPT)
    rig.up(1)
    rig.sent.clear()
    return rig


def test_the_end_of_the_script_ends_the_job(rig: Rig) -> None:
    rig.exit(1, 0, 1)  # the script, and what its own node held
    assert rig.one(commands.Kill).job == 1
    assert rig.state(1) is JobState.COMPLETING
    rig.exit(1, 2, 3)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.COMPLETED, 0)


def test_the_code_of_the_script_is_that_of_the_job(rig: Rig) -> None:
    rig.exit(1, 0, code=7)
    rig.exit(1, 1, 2, 3)
    assert (rig.state(1), rig.job(1).exit_code) == (JobState.FAILED, 7)


def test_a_server_that_restarts_tells_the_nodes_again(rig: Rig) -> None:
    rig.exit(1, 0, 1)
    rig.restart()
    assert rig.one(commands.Kill).job == 1
    rig.exit(1, 2, 3)
    assert rig.state(1) is JobState.COMPLETED


def test_nodes_that_do_not_answer_are_drained(rig: Rig) -> None:
    rig.exit(1, 0, 1)
    rig.wait(rig.limits.kill_grace_s + rig.limits.end_deadline_s + 1)
    assert len(rig.take(commands.Kill)) == 2
    assert rig.state(1) is JobState.COMPLETING


def test_a_script_on_one_node_needs_no_order(rig: Rig) -> None:
    rig.exit(1)
    assert rig.take(commands.Kill) == []
    assert rig.state(1) is JobState.COMPLETED

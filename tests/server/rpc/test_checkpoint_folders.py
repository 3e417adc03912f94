"""A node reports whether it shares the folder of checkpoints, before saved jobs start there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pliant.protos import app_pb2, node_pb2
from serverkit import Application, Controller, Server, User
from testkit import wait_until

pytestmark = pytest.mark.cluster


def answer(node: Controller, welcome: node_pb2.Welcome, problem: str = "") -> None:
    """Report the test of the folder of checkpoints as a controller does."""
    content = b"" if problem else Path(os.fsdecode(welcome.checkpoint_test)).read_bytes()
    report = node_pb2.CheckpointFolder(content=content, problem=problem)
    node.say(node_pb2.NodeReport(checkpoint_folder=report))


def save(application: Application) -> None:
    report = app_pb2.SaveReport(word=app_pb2.SAVE_WORD_SAVED, iteration=3, bytes=8, seconds=0.1)
    application.say(app_pb2.AppReport(save=report))


def waiting_job(user: User, number: int) -> dict[str, Any]:
    def job() -> dict[str, Any] | None:
        found = user.job(number)
        return found if found["state"] == "PENDING" and found["run"] == 2 else None

    found = wait_until(job, what="the second run to wait")
    assert found is not None
    return found


def test_a_saved_job_starts_when_the_node_shares_the_folder(server: Server) -> None:
    node = server.controller(slots=2)
    answer(node, node.expect("welcome"))
    with server.user() as user:
        job = user.submit(sizes="1-2")
        start = node.expect("start_world")
        application = Application(start, sizes="1-2")
        application.expect("welcome")
        save(application)
        wait_until(lambda: "job.saved" in user.kinds(job), what="the checkpoint")
        other = server.controller("n2", slots=2)
        welcome = other.expect("welcome")
        answer(other, welcome, "it is not mounted")
        user.do("drain", node="n1", reason="repair")
        user.do("requeue", id=job)
        node.exit(start)
        assert waiting_job(user, job)["run"] == 2
        user.submit(sizes="1")  # needs no checkpoint
        assert other.expect("start_world").job != job
        answer(other, welcome)
        again = other.expect("start_world")
        assert (again.job, again.run) == (job, 2)
    application.close()
    other.close()
    node.close()

"""A database that answers slowly holds up who asks it, and nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pliant.core.events import NodeRegistered
from pliant.core.values.ids import NodeName
from pliant.core.values.timeouts import Timeouts
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.user_requests.operation_table import Operations
from serverkit.scripted import Shell

ANN = RequestingUser(1000, "ann")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, "fcfs", Timeouts())
    yield shell
    shell.close()


class Gate:
    """A method of the reader that waits until it is let through."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, *args: Any) -> Any:
        self.entered.set()
        assert self.opened.wait(60), "the event loop was held up"
        return self._method(*args)


async def others_are_served(gate: Gate, actions: Operations, slow: asyncio.Task[Any]) -> None:
    """Check that a ping is answered while the slow request waits for the database."""
    while not gate.entered.is_set():
        await asyncio.sleep(0.01)
    assert not slow.done()
    assert (await actions.handle({"op": "ping"}, ANN))["ok"]
    gate.opened.set()


def test_a_job_that_has_left_the_status_cache_is_found_in_the_database(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(shell.reader.jobs)
    monkeypatch.setattr(shell.reader, "jobs", gate)
    actions = shell.actions()

    async def scenario() -> dict[str, Any]:
        slow = asyncio.ensure_future(actions.handle({"op": "cancel", "ids": [5]}, ANN))
        await others_are_served(gate, actions, slow)
        return await slow

    (result,) = asyncio.run(scenario())["results"]
    assert "no job 5" in str(result["error"])


def test_looking_up_a_submission_that_was_sent_twice(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.register([NodeRegistered(NodeName("n1"), 4)])
    number = shell.submit(key="once")
    gate = Gate(shell.reader.job_with_key)
    monkeypatch.setattr(shell.reader, "job_with_key", gate)
    actions = shell.actions(own_uid=ANN.uid)
    job = {"argv": ["true"], "cwd": "/tmp", "key": "once"}

    async def scenario() -> dict[str, Any]:
        slow = asyncio.ensure_future(actions.handle({"op": "submit", "job": job}, ANN))
        await others_are_served(gate, actions, slow)
        return await slow

    assert asyncio.run(scenario())["id"] == number

"""Requests for sizes of steps go to the shim of the script, and only its answers count."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from pliant.core.model.jobs import Job, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.sizes import Sizes
from pliant.protos import node_pb2
from pliant.protos.relay_server_rank import SERVER_RANK
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests import step_resizes
from pliant.server.user_requests.step_resizes import StepResizes

A, B = NodeName("a"), NodeName("b")
SCRIPT, RANKS, WAITING = JobId(1), JobId(2), JobId(3)
WORLD = "c.j1.r1.w0"


class Around:
    """The requests on nodes a and b, and the orders to these nodes."""

    def __init__(self) -> None:
        self.orders: list[tuple[NodeName, node_pb2.Relay]] = []
        self.connected = True
        status, worlds = StatusCache(), WorldRegistry("c")
        status.publish_nodes([Node(A, 0, 2), Node(B, 2, 2)])
        for number, kind, state in [
            (SCRIPT, JobType.SCRIPT, JobState.RUNNING),
            (RANKS, JobType.MPI, JobState.RUNNING),
            (WAITING, JobType.SCRIPT, JobState.PENDING),
        ]:
            job = Job(JobSpec(number, "job", "ann", kind, Sizes((3,)), 0.0), state)
            job.run = 1
            status.publish_jobs([job])
        worlds.add(World(WORLD, SCRIPT, 1, ResizeId(0), 1, (1, 2, 3), frozenset({A, B})))
        self.resizes = StepResizes(worlds, status, cast(Any, self))

    def send_to_node(self, name: NodeName, order: node_pb2.NodeOrder) -> bool:
        """Take an order in place of the connections."""
        self.orders.append((name, order.relay))
        return self.connected

    def answer(self, node: NodeName, world: str = WORLD, **values: object) -> None:
        """Send an answer to the last request."""
        request = json.loads(self.orders[-1][1].data)["request"]
        data = json.dumps({"request": request, **values}).encode()
        message = node_pb2.Relay(world=world, to_rank=SERVER_RANK, data=data)
        self.resizes.on_answer(node, message)

    async def ask(self, *answers: tuple[NodeName, str, str]) -> None:
        """Request size 4 of step 2; the node gives these answers: node, world and reason."""
        asking = asyncio.ensure_future(self.resizes.resize(SCRIPT, 2, 4))
        await asyncio.sleep(0)
        for node, world, reason in answers:
            self.answer(node, world, reason=reason)
        await asking


def test_a_size_is_set_by_the_shim_of_the_script() -> None:
    around = Around()
    asyncio.run(around.ask((A, WORLD, "")))
    ((node, relay),) = around.orders
    assert (node, relay.world, relay.from_rank, relay.to_rank) == (A, WORLD, SERVER_RANK, 0)
    sent = json.loads(relay.data)
    assert (sent["step"], sent["size"]) == (2, 4)


def test_a_refusal_of_the_shim_reaches_the_user() -> None:
    around = Around()
    with pytest.raises(UserRequestError, match="step 2 is rigid") as caught:
        asyncio.run(around.ask((A, WORLD, "step 2 is rigid")))
    assert caught.value.kind == "refused"


def test_answers_of_others_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_resizes, "ANSWER_TIMEOUT_S", 0.01)
    around = Around()
    with pytest.raises(UserRequestError, match="has not answered"):
        asyncio.run(around.ask((B, WORLD, ""), (A, "c.j2.r1.w0", "")))
    around.answer(A, reason="too late")
    for data in (b"", b"\xff", b"[]", b"{}", b'{"request": [], "reason": ""}'):
        around.resizes.on_answer(A, node_pb2.Relay(world=WORLD, data=data))


@pytest.mark.parametrize(
    ("job", "word"), [(RANKS, "no script"), (WAITING, "PENDING"), (SCRIPT, "not connected")]
)
def test_a_job_without_steps_is_refused(job: JobId, word: str) -> None:
    around = Around()
    around.connected = False
    with pytest.raises(UserRequestError, match=word):
        asyncio.run(around.resizes.resize(job, 1, 1))

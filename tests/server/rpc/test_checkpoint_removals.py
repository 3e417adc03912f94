from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pliant.core.values.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.server.rpc.checkpoint_removals import MAX_AT_NODE, CheckpointRemovals
from testkit import wait_until

N1, N2 = NodeName("n1"), NodeName("n2")
#: The user of each job that the database knows.
USERS = {JobId(1): 5001, JobId(2): 5002, JobId(3): 404, JobId(4): 500}


class Signer:
    """Signs nothing, but writes down what it is to sign."""

    def sign_removal(self, node: str, job: int, uid: int, folder: Path) -> bytes | None:
        if uid == 500:
            raise OSError("the database does not answer")
        return None if uid == 404 else f"{node} {job} {uid} {folder}".encode()


class Nodes:
    """Connections that record what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send_to_node(self, node: NodeName, order: node_pb2.NodeOrder) -> bool:
        self.sent.append((node, order.remove_checkpoints.signed_order.decode()))
        return True

    def wait(self, *orders: tuple[str, str]) -> None:
        wait_until(lambda: len(self.sent) >= len(orders), what="the orders")
        assert self.sent == list(orders)
        self.sent.clear()


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def removals(nodes: Nodes) -> Iterator[CheckpointRemovals]:
    made = CheckpointRemovals(
        cast(Any, nodes), cast(Any, Signer()), lambda job: Path(f"/saves/x.j{job}"), USERS.get
    )
    yield made
    made.stop()


def removed(job: int, problem: str = "") -> node_pb2.CheckpointsRemoved:
    return node_pb2.CheckpointsRemoved(job=job, problem=problem)


def test_orders_wait_for_a_node_and_go_to_nodes_in_turn(
    removals: CheckpointRemovals, nodes: Nodes
) -> None:
    removals.add(JobId(1))
    removals.on_node(N1, is_able=False)
    assert nodes.sent == []
    removals.on_node(N1, is_able=True)
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    removals.on_node(N2, is_able=True)
    removals.add(JobId(2))
    nodes.wait((N1, "n1 2 5002 /saves/x.j2"))
    removals.add(JobId(1))
    nodes.wait((N2, "n2 1 5001 /saves/x.j1"))


def test_orders_of_a_node_that_is_gone_are_sent_to_another(
    removals: CheckpointRemovals, nodes: Nodes
) -> None:
    removals.on_node(N1, is_able=True)
    removals.add(JobId(1))
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    removals.on_node_gone(N1)
    removals.on_node(N2, is_able=True)
    nodes.wait((N2, "n2 1 5001 /saves/x.j1"))
    removals.on_result(N1, removed(1))  # too late: it does not have the order any more
    removals.on_node_gone(N2)
    removals.on_node(N1, is_able=True)
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    removals.on_result(N1, removed(1))
    removals.on_node(N1, is_able=True)
    removals.add(JobId(2))
    nodes.wait((N1, "n1 2 5002 /saves/x.j2"))


def test_failures_are_logged_once(
    removals: CheckpointRemovals, nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    removals.on_node(N1, is_able=True)
    removals.add(JobId(1))
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    removals.on_result(N1, removed(1, "the folder belongs to user 5002\n"))
    removals.on_result(N1, removed(1, "again"))
    for unknown in (3, 4, 99):
        removals.add(JobId(unknown))

    def warnings() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]

    wait_until(lambda: len(warnings()) == 4, what="the warnings")
    words = ["belongs to user 5002", "404", "does not answer", "unknown"]
    assert [word in text for word, text in zip(words, warnings(), strict=True)] == [True] * 4
    removals.add(JobId(2))  # the failures left no order behind
    nodes.wait((N1, "n1 2 5002 /saves/x.j2"))


def test_orders_do_not_wait_at_a_node_where_they_would_expire(
    removals: CheckpointRemovals, nodes: Nodes
) -> None:
    ended = [JobId(number) for number in range(10, 14 + MAX_AT_NODE)]
    USERS.update(dict.fromkeys(ended, 5001))
    for job in ended:
        removals.add(job)
    removals.on_node(N1, is_able=True)
    first, rest = ended[:MAX_AT_NODE], ended[MAX_AT_NODE:]
    nodes.wait(*((N1, f"n1 {job} 5001 /saves/x.j{job}") for job in first))
    for done, job in zip(ended, rest, strict=False):
        removals.on_result(N1, removed(done))
        nodes.wait((N1, f"n1 {job} 5001 /saves/x.j{job}"))

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pliant.core.values.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.server.rpc import checkpoint_removals
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
    made = CheckpointRemovals(cast(Any, nodes), cast(Any, Signer()), USERS.get)
    yield made
    made.stop()


def add(removals: CheckpointRemovals, job: int) -> None:
    removals.add(JobId(job), Path(f"/saves/x.j{job}"))


def removed(job: int, problem: str = "") -> node_pb2.CheckpointsRemoved:
    return node_pb2.CheckpointsRemoved(job=job, problem=problem)


def test_orders_wait_for_a_node_and_go_to_nodes_in_turn(
    removals: CheckpointRemovals, nodes: Nodes
) -> None:
    add(removals, 1)
    removals.on_node(N1, is_able=False)
    assert nodes.sent == []
    removals.on_node(N1, is_able=True)
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    removals.on_node(N2, is_able=True)
    add(removals, 2)
    nodes.wait((N1, "n1 2 5002 /saves/x.j2"))
    removals.on_result(N1, removed(1))
    add(removals, 1)
    nodes.wait((N2, "n2 1 5001 /saves/x.j1"))


def test_a_search_does_not_repeat_orders_that_a_node_has(
    removals: CheckpointRemovals, nodes: Nodes
) -> None:
    removals.on_node(N1, is_able=True)
    add(removals, 1)
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    add(removals, 1)
    removals.add(JobId(1), Path("/saves/old.j1"))
    add(removals, 2)
    nodes.wait((N1, "n1 2 5002 /saves/x.j2"))
    removals.on_result(N1, removed(1))
    nodes.wait((N1, "n1 1 5001 /saves/old.j1"))


def test_orders_of_a_node_that_is_gone_are_sent_to_another(
    removals: CheckpointRemovals, nodes: Nodes
) -> None:
    removals.on_node(N1, is_able=True)
    add(removals, 1)
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
    add(removals, 2)
    nodes.wait((N1, "n1 2 5002 /saves/x.j2"))


def test_failures_are_logged(
    removals: CheckpointRemovals, nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    removals.on_node(N1, is_able=True)
    add(removals, 1)
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    removals.on_result(N1, removed(1, "the folder belongs to user 5002\n"))
    removals.on_result(N1, removed(1, "again"))
    for unknown in (3, 4, 99):
        add(removals, unknown)

    def warnings() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]

    wait_until(lambda: len(warnings()) == 4, what="the warnings")
    words = ["belongs to user 5002", "404", "does not answer", "unknown"]
    assert [word in text for word, text in zip(words, warnings(), strict=True)] == [True] * 4
    assert "attempt 2" in warnings()[0]
    add(removals, 2)  # the failures left no order behind
    nodes.wait((N1, "n1 2 5002 /saves/x.j2"))


def test_orders_do_not_wait_at_a_node_where_they_would_expire(
    removals: CheckpointRemovals, nodes: Nodes
) -> None:
    ended = [JobId(number) for number in range(10, 14 + MAX_AT_NODE)]
    USERS.update(dict.fromkeys(ended, 5001))
    for job in ended:
        add(removals, job)
    removals.on_node(N1, is_able=True)
    first, rest = ended[:MAX_AT_NODE], ended[MAX_AT_NODE:]
    nodes.wait(*((N1, f"n1 {job} 5001 /saves/x.j{job}") for job in first))
    for done, job in zip(ended, rest, strict=False):
        removals.on_result(N1, removed(done))
        nodes.wait((N1, f"n1 {job} 5001 /saves/x.j{job}"))


def test_failed_removals_are_repeated_with_growing_delays(
    removals: CheckpointRemovals,
    nodes: Nodes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(checkpoint_removals, "RETRY_S", 0.25)
    removals.on_node(N1, is_able=True)
    add(removals, 1)
    for _ in range(3):
        nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
        removals.on_result(N1, removed(1, "8 removals have not ended yet"))
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    delays = [record.args[-1] for record in caplog.records if isinstance(record.args, tuple)]
    assert delays == [0.25, 0.5, 1.0]


def test_an_order_without_an_answer_is_repeated(
    removals: CheckpointRemovals, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_removals, "ORDER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(checkpoint_removals, "RETRY_S", 0.1)
    removals.on_node(N1, is_able=True)
    add(removals, 1)
    wait_until(lambda: len(nodes.sent) >= 2, what="the repetition")


def test_a_user_with_slow_removals_does_not_block_the_others(
    removals: CheckpointRemovals, nodes: Nodes
) -> None:
    slow = [JobId(number) for number in range(20, 40)]
    USERS.update(dict.fromkeys(slow, 5001))
    for job in slow:
        add(removals, job)
    removals.on_node(N1, is_able=True)
    wait_until(lambda: len(nodes.sent) == MAX_AT_NODE, what="the first orders")
    add(removals, 2)
    nodes.sent.clear()
    removals.on_result(N1, removed(20, "the root helper does not answer"))
    nodes.wait((N1, "n1 2 5002 /saves/x.j2"))


def test_removals_beyond_the_limit_are_found_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_removals, "MAX_WAITING", 2)
    monkeypatch.setattr(checkpoint_removals, "SEARCH_S", 0.0)
    left = {JobId(number) for number in range(50, 60)}
    USERS.update(dict.fromkeys(left, 5001))

    def search() -> None:
        for job in sorted(left):
            add(made, job)

    made = CheckpointRemovals(cast(Any, nodes), cast(Any, Signer()), USERS.get, search)
    search()
    made.on_node(N1, is_able=True)
    while left:
        wait_until(lambda: bool(nodes.sent), what="an order")
        job = int(nodes.sent.pop(0)[1].split()[1])
        left.discard(JobId(job))
        made.on_result(N1, removed(job))
    made.stop()


def test_a_user_with_many_removals_does_not_keep_those_of_others_out(
    removals: CheckpointRemovals, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_removals, "MAX_WAITING", 8)
    monkeypatch.setattr(checkpoint_removals, "MAX_OF_USER", 2)
    monkeypatch.setattr(checkpoint_removals, "MAX_AT_NODE", 100)
    many = range(60, 68)
    USERS.update(dict.fromkeys(map(JobId, many), 5001))
    for job in many:
        add(removals, job)
    removals.on_node(N1, is_able=True)
    wait_until(lambda: len(nodes.sent) == 2, what="the orders of the first user")
    add(removals, 2)
    nodes.wait(*((N1, f"n1 {job} 500{job // 60 or 2} /saves/x.j{job}") for job in (60, 61, 2)))


def test_both_folders_of_a_job_are_removed(removals: CheckpointRemovals, nodes: Nodes) -> None:
    add(removals, 1)
    removals.add(JobId(1), Path("/saves/old.j1"))
    removals.on_node(N1, is_able=True)
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))
    removals.on_result(N1, removed(1))
    nodes.wait((N1, "n1 1 5001 /saves/old.j1"))
    removals.on_result(N1, removed(1))


def test_a_folder_of_another_user_is_left(
    removals: CheckpointRemovals, nodes: Nodes, tmp_path: Path
) -> None:
    removals.add(JobId(1), tmp_path)  # it does not belong to user 5001
    add(removals, 1)
    removals.on_node(N1, is_able=True)
    nodes.wait((N1, "n1 1 5001 /saves/x.j1"))

"""A node that could not start a job finds out by itself when it can again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.controller import start_self_test
from pliant.nodectl.controller.start_self_test import StartSelfTest, find_problem
from testkit import wait_until


def test_what_is_in_the_way_is_found(tmp_path: Path) -> None:
    assert find_problem(tmp_path / "spool", 3) == ""
    assert list((tmp_path / "spool").iterdir()) == []
    (tmp_path / "file").touch()
    assert "file" in find_problem(tmp_path / "file", 1)


def test_processes_that_cannot_be_started_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    assert "temporarily unavailable" in find_problem(tmp_path, 1)


def test_each_failure_doubles_the_time_to_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1e6]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    passed: list[float] = []
    tests = StartSelfTest(tmp_path, 1, lambda: passed.append(now[0]))

    async def first_test_at(limit_s: float) -> float:
        start, count = now[0], len(passed)
        while now[0] - start < limit_s and len(passed) == count:
            now[0] += 1.0
            tests.test_if_due()
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        return now[0] - start

    async def run() -> list[float]:
        assert await first_test_at(10) == 1.0  # at the start of the controller
        waits = []
        for _ in range(10):
            tests.start_failed()
            assert not tests.is_able
            waits.append(await first_test_at(1000))
            assert tests.is_able
        now[0] += start_self_test.FORGET_S
        tests.start_failed()
        return [*waits, await first_test_at(1000)]

    waits = asyncio.run(run())
    assert waits == [4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 4]


@pytest.mark.cluster
def test_a_node_whose_spool_can_be_used_again_says_so(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    wait_until(lambda: server.able == ["n1"])  # once, when it starts
    shutil.rmtree(node.spool)
    node.spool.touch()
    world = World(["true"], tmp_path / "out", type="uni")
    world.start(server)
    (end,) = world.ends(server)
    assert end.node_fault
    assert server.able == ["n1"]
    node.spool.unlink()
    wait_until(lambda: server.able == ["n1", "n1"], timeout=60)
    again = World(["true"], tmp_path / "out", type="uni", job=2)
    again.start(server)
    assert [end.code for end in again.ends(server)] == [0]


@pytest.mark.cluster
def test_a_later_server_learns_that_the_node_can_start_jobs(server: FakeServer, node: Node) -> None:
    wait_until(lambda: server.able == ["n1"])
    server.stop()
    server.start()
    wait_until(lambda: node.name in server.nodes)
    wait_until(lambda: server.able == ["n1", "n1"])

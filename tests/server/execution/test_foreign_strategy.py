"""A real server whose strategy is not ours: nothing that it does stops the server."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pliant.server.execution.planner import FAULTS_ALLOWED
from serverkit import Server
from testkit import wait_until

pytestmark = pytest.mark.cluster

STRATEGIES = """
import os, time
from pliant.strategies.queueing_presets import fcfs
from pliant.strategies.queueing import Composed


class Hangs(Composed):
    def allocate_processors(self, view):
        while True:
            pass


class Stumbles(Composed):
    def allocate_processors(self, view):
        seen = __file__ + ".seen"
        if view.waiting and not os.path.exists(seen):
            open(seen, "w").close()
            raise ValueError("stumbled")
        return super().allocate_processors(view)


class Dies(Composed):
    def allocate_processors(self, view):
        os._exit(9)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text(STRATEGIES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def workers(server: Server) -> list[str]:
    """Command lines of the server's children."""
    assert server.process is not None
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [child for path in children for child in path.read_text().split()]
    return [Path(f"/proc/{child}/cmdline").read_text() for child in found]


def test_a_good_one_serves(make_server: Callable[..., Server]) -> None:
    strategy = "pliant.strategies.queueing_presets:fcfs"
    server = make_server(strategy=strategy, strategy_deadline_s=60).start()
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(sizes="2")
        assert node.expect("start_world").job == job
        assert user.do("nodes")["strategy"] == "pliant.strategies.queueing_presets:fcfs"
    assert ["strategy_worker" in line for line in workers(server)] == [True]
    node.close()
    server.stop()
    assert "fault" not in server.log()


@pytest.mark.case(64)
@pytest.mark.parametrize(
    ("name", "says"),
    [("Hangs", "no answer within 0.7 s"), ("Dies", "its process ended with exit code 9")],
)
def test_a_foreign_strategy_that_hangs_or_dies_is_replaced(
    make_server: Callable[..., Server], name: str, says: str
) -> None:
    deadline = 0.7 if name == "Hangs" else 60.0
    server = make_server(strategy=f"theirs:{name}", strategy_deadline_s=deadline).start()
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(sizes="2")
        while "fcfs takes over" not in server.log():
            user.do("jobs")
            user.submit(sizes="1")
        assert node.expect("start_world").job == job
    assert server.log().count(says) == FAULTS_ALLOWED, "it delays no more cycles than that"
    wait_until(lambda: not workers(server))
    node.close()
    assert server.stop(signal.SIGTERM) == 0


def test_a_foreign_strategy_that_fails_once_is_asked_again(
    make_server: Callable[..., Server],
) -> None:
    server = make_server(strategy="theirs:Stumbles", strategy_deadline_s=60.0).start()
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(sizes="2")
        assert node.expect("start_world").job == job
        assert user.do("nodes")["strategy"] == "theirs:Stumbles"
    assert "stumbled" in server.log()
    node.close()
    server.stop()


def test_options_reach_the_strategy(make_server: Callable[..., Server]) -> None:
    server = make_server(strategy="egs+pra", strategy_options={"initial": "lo", "threshold": 1})
    server.start("--strategy-option", "initial=max")
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        user.submit(sizes="1-4")
        assert node.expect("start_world").world_size == 4
    assert workers(server) == []
    node.close()

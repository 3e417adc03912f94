"""Queries: the strategy in force says what would become of a job, and nothing is submitted."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serverkit import Server, User, job_request
from testkit import wait_until

pytestmark = pytest.mark.cluster

STRATEGIES = """
import time
from pliant.strategies.interface.base import Strategy
from pliant.strategies.queueing import Composed
from pliant.core.model.views_and_plans import Plan


class Hangs(Composed):
    def is_available(self, job, view):
        while True:
            time.sleep(1)


class Raises(Composed):
    def is_available(self, job, view):
        raise ValueError("no idea")


class Babbles(Composed):
    def is_available(self, job, view):
        return "yes"


class Silent(Strategy):
    def allocate_processors(self, view):
        return Plan()
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text(STRATEGIES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def query(user: User, **job: Any) -> dict[str, Any]:
    return user.do("query", job=job_request(**job))


def test_what_would_become_of_a_job(make_server: Callable[..., Server]) -> None:
    server = make_server(strategy="fcfs").start()
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        found = query(user, sizes="2-8")
        assert (found["accepted"], found["processors"], found["strategy"]) == (True, 4, "fcfs")
        assert found["start"] <= found["now"] + 1
        assert found["price"] is None
        job = user.submit(sizes="4", estimate_s=100)
        node.ready(node.expect("start_world"))
        wait_until(lambda: user.job(job)["state"] == "RUNNING", what="it runs")
        found = query(user, sizes="2")
        assert found["accepted"]
        assert 50 < found["start"] - found["now"] <= 100
        found = query(user, sizes="9")
        assert found["accepted"] is False
        assert "4 processors" in found["reason"]
        assert user.ask("query", job=job_request(sizes="x"))["error"]["field"] == "sizes"
        assert [info["id"] for info in user.do("jobs")["jobs"]] == [job]
        assert {event["job"] for event in user.do("history")["events"]} <= {None, job}
    node.close()


@pytest.mark.parametrize("strategy", ["profit-simple", "profit-lazy"])
def test_the_price_of_a_contract(make_server: Callable[..., Server], strategy: str) -> None:
    server = make_server(strategy=strategy).start()
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        contract = {"estimate_s": 100, "deadline_s": 400, "profit": "100"}
        found = query(user, sizes="4", **contract)
        assert (found["accepted"], found["processors"], found["price"]) == (True, 4, 0.0)
        user.submit(sizes="4", **contract)
        node.ready(node.expect("start_world"))
        found = query(user, sizes="4", **{**contract, "deadline_s": 150})
        assert (found["accepted"], found["reason"]) == (False, "deadline cannot be met")
    node.close()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pliant.strategies.queueing_presets:fcfs", "processors are available"),
        ("theirs:Raises", "no idea"),
        ("theirs:Babbles", "str"),
        ("theirs:Silent", "does not answer queries"),
    ],
)
def test_a_strategy_that_is_not_ours_is_asked_in_its_own_process(
    make_server: Callable[..., Server], name: str, says: str
) -> None:
    server = make_server(strategy=name, strategy_deadline_s=60).start()
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        found = query(user, sizes="2")
        assert says in found["reason"]
        assert found["accepted"] is (True if ":fcfs" in name else None)
        assert user.do("nodes")["strategy"] == name  # an answer is no plan: it costs nobody a place
    node.close()
    assert server.stop(signal.SIGTERM) == 0


def test_one_that_hangs_holds_up_nobody(make_server: Callable[..., Server]) -> None:
    server = make_server(strategy="theirs:Hangs", strategy_deadline_s=5.0).start()
    node = server.controller(slots=4).welcome()
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        with server.user() as user:
            answers.append(query(user, sizes="2"))

    asking = threading.Thread(target=ask)
    asking.start()
    with server.user() as other:
        served = 0
        while not answers and asking.is_alive():
            other.do("ping")
            job = other.submit(sizes="1")
            served += 1
            time.sleep(0.05)
        asking.join()
        assert served > 1
        assert answers[0]["accepted"] is None
        assert "no answer within 5 s" in answers[0]["reason"]
        assert other.job(job)["id"] == job
    node.close()
    assert server.stop(signal.SIGTERM) == 0

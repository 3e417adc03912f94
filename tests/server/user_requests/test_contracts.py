"""Deadlines and profit through a real server: accepted, refused, and kept over a crash."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from serverkit import Server, job_request
from testkit import wait_until

pytestmark = pytest.mark.cluster


def test_a_promise_is_kept_over_a_crash(make_server: Callable[..., Server]) -> None:
    server = make_server(strategy="profit-lazy").start()
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        first = user.submit(sizes="4", estimate_s=100, deadline_s=500, profit="100")
        start = node.expect("start_world")
        node.ready(start)
        later = user.submit(sizes="4", estimate_s=100, deadline_s=5000, profit="80:soft=1")
        late = user.submit(sizes="4", estimate_s=100, deadline_s=50)
        wait_until(lambda: user.job(late)["state"] == "REJECTED", what="the late one is refused")
        assert user.job(late)["reason"] == "deadline cannot be met"
        before = user.job(later)
        assert before["state"] == "PENDING"
        assert f"starts when job {first} ends" in before["promise"]
        assert before["contract"]["profit"] == 80.0
    server.stop(signal.SIGKILL)
    node.close()
    server.start()
    with server.user() as user:
        after = user.job(later)
        for name in ("promise", "promised_start", "contract", "deadline", "state"):
            assert after[name] == before[name]
        told = "\n".join(user.do("why", id=later)["text"])
        assert "contract: its deadline is in" in told
        assert "promise: accepted" in told
        assert "worth 80 at present" in told
        told = "\n".join(user.do("why", id=late)["text"])
        assert "deadline cannot be met" in told
        assert "its deadline was 50 s after its submission" in told
        assert "what it prints" not in told


def test_absolute_deadlines_count_from_the_wall_clock(server: Server) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        job = user.submit(sizes="1", deadline_at=time.time() + 1000)
        assert 900 < user.job(job)["contract"]["deadline_s"] <= 1000
    node.close()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"profit": "100"}, "profit"),
        ({"deadline_s": 10, "profit": "much"}, "profit"),
        ({"deadline_s": 10, "deadline_at": 1e10}, "deadline_s"),
        ({"deadline_s": 0}, "deadline"),
        ({"deadline_s": 1e300}, "deadline"),
        ({"deadline_at": 1000}, "deadline"),
    ],
)
def test_bad_contracts_are_refused_with_their_field(
    refusing_server: Server, fields: dict[str, object], field: str
) -> None:
    with refusing_server.user() as user:
        answer = user.ask("submit", job=job_request(**fields))
        assert answer["error"]["field"] == field

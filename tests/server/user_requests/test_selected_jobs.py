"""Jobs that are selected by user, state and name: listed, forecast and cancelled together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serverkit import Controller, Server, User

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(server: Server) -> Iterator[Controller]:
    controller = server.controller(slots=1).welcome()
    yield controller
    controller.close()


def test_jobs_are_selected_forecast_and_cancelled(node: Controller, user: User) -> None:
    running = user.submit(name="first", time_limit_s=600.0)
    start = node.expect("start_world")
    waiting = [user.submit(name=f"sim{n}", time_limit_s=60.0) for n in range(3)]
    last = user.submit(name="last")

    found = user.do("jobs", names=["sim*"], states=["PENDING"])
    assert [job["id"] for job in found["jobs"]] == waiting
    assert user.do("jobs", names=["sim*"], states=["RUNNING"])["jobs"] == []

    (first,) = user.do("jobs", ids=[running])["jobs"]
    starts = user.do("starts")["starts"]
    assert starts[str(waiting[0])] == pytest.approx(first["limit_end"], abs=1.0)
    assert starts[str(waiting[2])] - starts[str(waiting[1])] == pytest.approx(60.0, abs=1.0)
    assert starts[str(last)] - starts[str(waiting[2])] == pytest.approx(60.0, abs=1.0)

    results = user.do("cancel", names=["sim[01]"])["results"]
    assert results == [{"id": job, "ok": True} for job in waiting[:2]]
    assert user.do("cancel", names=["sim[01]"])["results"] == []
    left = user.do("jobs", states=["PENDING"])["jobs"]
    assert [job["id"] for job in left] == [waiting[2], last]
    ended = user.do("jobs", states=["CANCELLED"], all=True)["jobs"]
    assert [job["id"] for job in ended] == waiting[:2]

    user.do("cancel", states=["PENDING"])
    node.exit(start)
    user.do("wait", id=running)

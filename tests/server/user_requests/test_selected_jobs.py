"""Jobs that are selected by user, state and name: listed, forecast and cancelled together."""

from __future__ import annotations

import json
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


def test_only_the_waiting_tasks_of_an_array_are_cancelled_by_state(
    node: Controller, server: Server, user: User
) -> None:
    array = user.submit(name="sweep", array="1-800")
    start = node.expect("start_world")
    waiting = server.user()
    for task in range(101, 801):
        request = {"op": "wait", "id": f"{array}_{task}", "tag": task}
        waiting.send(json.dumps(request).encode() + b"\n")

    results = user.do("cancel", names=["sweep"], states=["PENDING"])["results"]
    assert results == [{"id": array, "ok": True}]
    answers = [waiting.receive() for _ in range(700)]
    waiting.close()
    assert sorted(answer["tag"] for answer in answers) == list(range(101, 801))
    assert {answer["job"]["state"] for answer in answers} == {"CANCELLED"}

    (left,) = user.do("jobs", names=["sweep"], states=["STARTING", "RUNNING"])["jobs"][-1:]
    assert left["array_task"] == 1
    assert user.do("jobs", states=["PENDING"])["jobs"] == []
    node.exit(start)
    assert user.do("wait", id=left["id"])["job"]["state"] == "COMPLETED"
    assert user.do("wait", id=array)["job"]["array"]["cancelled"] == 799


def test_names_of_tasks_select_only_tasks_of_the_array(node: Controller, user: User) -> None:
    other = user.submit(name="other")
    node.expect("start_world")
    array = user.submit(name="sweep", array="1-3")
    last = user.submit(name="last")  # has the number that a task 4 would have
    found = user.do("jobs", ids=[f"{array}_[2-1000000]"])
    assert [job["array_task"] for job in found["jobs"]] == [2, 3]
    assert found["missing"] == [f"{array}_[4-1000000]"]

    large = user.submit(name="large", array="0-10000")
    refused = user.ask("jobs", ids=[f"{large}_[0-10000]"])
    assert "more than 10000 tasks" in refused["error"]["message"]
    results = user.do("cancel", ids=[f"{large}_[5000-9000]", other, last, array, large])
    assert all(result["ok"] for result in results["results"])

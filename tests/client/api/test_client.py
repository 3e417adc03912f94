from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pliant.client.api import Client, Event, Node
from pliant.client.client_errors import NoServerError, RequestError, SubmitError

MakeJob = Callable[..., dict[str, Any]]


def test_submit(server: Any) -> None:
    server.answers["submit"] = {"id": 3}
    with Client() as client:
        assert client.submit(sys.executable, "-V", sizes=4, name="x", hold=True) == 3
    job = server.last["job"]
    assert (job["sizes"], job["name"], job["hold"]) == ("4", "x", True)
    with pytest.raises(SubmitError) as caught:
        Client().submit("./missing")
    assert (caught.value.kind, caught.value.field) == ("invalid", "program")
    with pytest.raises(TypeError, match=r"submit: there is no option 'size'; there are: sizes, "):
        Client().submit(sys.executable, size="4")  # type: ignore[call-arg]


def test_a_query_is_typed(server: Any) -> None:
    answer = {"accepted": True, "start": 5.0, "processors": 2, "price": None, "reason": "free"}
    server.answers["query"] = {**answer, "strategy": "fcfs", "now": 5.0}
    with Client() as client:
        found = client.query("true", sizes=2, deadline_s=60.0, profit=100)
    assert (found.accepted, found.start, found.processors, found.price) == (True, 5.0, 2, None)
    assert server.last["job"]["profit"] == "100"


def test_jobs_have_types(server: Any, make_job: MakeJob) -> None:
    server.answers["jobs"] = {"jobs": [make_job(1, state="FAILED", exit_code=3, unknown="new")]}
    with Client() as client:
        job = client.job(1)
        assert (job.id, job.class_, job.nodes, job.exit_code) == (1, "malleable", ("n1",), 3)
        assert job.final
        assert server.last == {"op": "jobs", "ids": [1], "all": True}
        assert client.jobs() == [job]
        assert server.last == {"op": "jobs", "ids": None, "all": False}
        server.answers["jobs"] = {"jobs": []}
        with pytest.raises(RequestError, match="no job 9"):
            client.job(9)


def test_nodes_and_events_have_types(server: Any) -> None:
    server.answers["nodes"] = {"nodes": [{"name": "n1", "state": "UP", "jobs": [1, 2]}]}
    event = {
        "seq": 1,
        "time": 2.0,
        "kind": "job.started",
        "job": None,
        "text": "",
        "data": {"a": 1},
    }
    server.answers["history"] = {"events": [event]}
    with Client() as client:
        assert client.nodes() == [Node("n1", state="UP", jobs=(1, 2))]
        assert client.history() == [Event(1, 2.0, "job.started", data={"a": 1})]


def test_acting_on_jobs_and_nodes(server: Any) -> None:
    server.answers["resize"] = {"message": "offered"}
    server.answers["why"] = {"text": ["a"], "facts": {"b": 1}}
    server.answers["cancel"] = {"results": [{"id": 2, "ok": False, "error": "ended"}]}
    with Client() as client:
        client.remove("n3")
        assert server.last == {"op": "remove", "node": "n3"}
        assert client.resize(1, 2, release=["n1"]) == "offered"
        assert (client.why(1).text, client.why(1).facts) == (("a",), {"b": 1})
        client.hold(1)
        client.release(1)
        client.drain("n1", "disk")
        client.resume("n1")
        assert server.last == {"op": "resume", "node": "n1"}
        with pytest.raises(RequestError, match="job 2: ended"):
            client.cancel(1, 2)


def test_wait(server: Any, make_job: MakeJob) -> None:
    states = iter(["RUNNING", "COMPLETED"])  # it lets go of those who wait when it stops
    server.answers["wait"] = lambda _: {"job": make_job(1, state=next(states))}
    with Client() as client:
        assert client.wait(1).state == "COMPLETED"


@pytest.mark.usefixtures("state_dir")
def test_no_server() -> None:
    with pytest.raises(NoServerError):
        Client().jobs()
    with pytest.raises(NoServerError):
        Client().submit("true")

"""Dependencies, warnings and names of files through a real server."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator

import pytest

from serverkit import Controller, Server, User, job_request
from testkit import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(server: Server) -> Iterator[Controller]:
    controller = server.controller(slots=2).welcome()
    yield controller
    controller.close()


def test_a_job_starts_after_another_and_not_without(node: Controller, user: User) -> None:
    first = user.submit()
    start = node.expect("start_world")
    second = user.submit(dependency=f"afterok:{first}")
    third = user.submit(dependency=f"afternotok:{first}")
    (info,) = user.do("jobs", ids=[second])["jobs"]
    assert (info["state"], info["dependency"]) == ("PENDING", f"afterok:{first}")
    node.exit(start)
    assert node.expect("start_world").job == second
    assert user.do("wait", id=third)["job"]["state"] == "REJECTED"
    answer = user.ask("submit", job=job_request(dependency=f"afternotok:{first}"))
    assert answer["error"]["kind"] == "refused"
    assert answer["error"]["field"] == "dependency"
    answer = user.ask("submit", job=job_request(dependency="afterok:99"))
    assert answer["error"]["field"] == "dependency"


def test_a_job_begins_at_its_time(node: Controller, user: User) -> None:
    job = user.submit(begin_s=2.0)
    far = user.submit(begin_at=time.time() + 3600)
    (info,) = user.do("jobs", ids=[far])["jobs"]
    assert (info["state"], info["reason_code"]) == ("PENDING", "begin")
    assert user.do("starts")["starts"][str(far)] == info["begin"]
    assert any("begins at" in line for line in user.do("why", id=far)["text"])
    start = node.expect("start_world")
    assert start.job == job
    (begun,) = user.do("jobs", ids=[job])["jobs"]
    assert begun["start"] >= begun["begin"]
    node.exit(start)


@pytest.mark.usefixtures("node")
def test_a_query_for_a_later_time_names_it(user: User) -> None:
    begin = time.time() + 3600
    answer = user.do("query", job=job_request(begin_at=begin))
    assert answer["accepted"]
    assert answer["start"] == pytest.approx(begin, abs=5)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"begin_s": 1.0, "begin_at": 1.0}, "begin_s"),
        ({"begin_s": -1.0}, "begin"),
        ({"begin_s": 1e12}, "begin"),
        ({"begin_s": 60.0, "deadline_s": 50.0}, "deadline"),
    ],
)
def test_a_begin_time_that_cannot_be(
    refusing_server: Server, fields: dict[str, float], field: str
) -> None:
    with refusing_server.user() as user:
        answer = user.ask("submit", job=job_request(**fields))
    assert answer["error"]["field"] == field


@pytest.mark.usefixtures("node")
def test_the_deadline_of_a_job_with_a_begin_time_is_that_of_its_user(user: User) -> None:
    job = user.submit(begin_s=1800.0, deadline_s=3600.0, estimate_s=10.0, profit="5:soft=1")
    (info,) = user.do("jobs", ids=[job])["jobs"]
    assert info["deadline"] == pytest.approx(info["submit"] + 3600)


def test_the_warning_reaches_the_node(node: Controller, user: User) -> None:
    job = user.submit(time_limit_s=60.0, signal="USR1@59.9")
    start = node.expect("start_world")
    node.ready(start)
    order = node.find("signal")
    assert (order.job, order.number) == (job, 10)
    node.exit(start)
    assert "job.warned" in user.kinds(job)


def test_a_signal_of_its_user_reaches_the_node(node: Controller, user: User) -> None:
    job = user.submit()
    start = node.expect("start_world")
    node.ready(start)
    wait_until(lambda: user.do("jobs", ids=[job])["jobs"][0]["state"] == "RUNNING", what="the job")
    assert "USR2" in user.do("signal", id=job, signal="usr2")["message"]
    order = node.find("signal")
    assert (order.job, order.number) == (job, 12)
    assert user.ask("signal", id=job, signal="NONE")["error"]["field"] == "signal"
    node.exit(start)
    assert user.do("wait", id=job)["job"]["state"] == "COMPLETED"
    assert user.ask("signal", id=job, signal="USR1")["error"]["kind"] == "refused"


def test_names_of_files(node: Controller, user: User) -> None:
    job = user.submit(name="a/b", stdout="%u-%A-%x-%N-%n-%%", stderr="%j-%q")
    start = node.expect("start_world")
    me = getpass.getuser()
    assert start.stdout.decode() == f"/tmp/{me}-{job}-a_b-n1-0-%"
    assert start.stderr.decode() == f"/tmp/{job}-%q"
    assert not start.HasField("first_rank")
    node.exit(start)


def test_the_node_replaces_the_mark_for_the_rank(node: Controller, user: User) -> None:
    job = user.submit(name="50%t", stdout="%n-%t-%%-%x", stderr="%j-%q")
    start = node.expect("start_world")
    assert start.stdout == b"/tmp/0-%t-%%-50%%t"
    assert start.stderr.decode() == f"/tmp/{job}-%q"
    assert start.first_rank == 0
    node.exit(start)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dependency", "17"),
        ("signal", "USR1@5"),
        ("comment", "x" * 2000),
        ("signal", "KILL@5"),
        ("components", [2]),
        ("components", [1, 0]),
        ("components", [1] * 300),
        ("components", ["2"]),
    ],
)
def test_wrong_fields_are_named(refusing_server: Server, field: str, value: object) -> None:
    with refusing_server.user() as user:
        answer = user.ask("submit", job=job_request(**{field: value}))
    assert answer["error"]["field"] == field


def test_components_are_kept_and_listed(node: Controller, user: User) -> None:
    job = user.submit(sizes="2", components=[1, 1])
    (info,) = user.do("jobs", ids=[job])["jobs"]
    assert (info["components"], info["sizes"]) == ([1, 1], "2")
    node.exit(node.expect("start_world"))

"""The operation ``watch`` on a real server, with a controller that only pretends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from pliant.client import Client, Event
from serverkit import Controller, Server, User
from testkit import wait_until

pytestmark = pytest.mark.cluster

Message = dict[str, Any]


@pytest.fixture
def node(server: Server) -> Iterator[Controller]:
    controller = server.controller(slots=4).welcome()
    yield controller
    controller.close()


class Watcher:
    """A subscription, and what it has received."""

    def __init__(self, user: User, **fields: Any) -> None:
        self._user = user
        self.first = user.do("watch", **fields)
        self.messages: list[Message] = []

    @property
    def events(self) -> list[Message]:
        return [event for message in self.messages for event in message.get("events", ())]

    def jobs(self, number: int) -> list[Message]:
        """Return all states of a job that were received."""
        rows = (row for message in self.messages for row in message.get("jobs", ()))
        return [row for row in rows if row["id"] == number]

    def until(self, reached: Callable[[], bool]) -> None:
        """Receive messages until a condition holds."""
        while not reached():
            self.messages.append(self._user.receive())

    def until_kind(self, kind: str) -> None:
        """Receive messages until an event of a kind has arrived."""
        self.until(lambda: any(event["kind"] == kind for event in self.events))


def receive_all(user: User) -> None:
    while True:
        user.receive()


def test_a_subscriber_gets_the_state_and_then_each_event_once(
    server: Server, node: Controller
) -> None:
    with server.user() as user, server.user() as other:
        early = user.submit(sizes="1", hold=True)
        watcher = Watcher(other)
        assert [row["id"] for row in watcher.first["jobs"]] == [early]
        assert [row["name"] for row in watcher.first["nodes"]] == ["n1"]
        job = user.submit(sizes="2")
        start = node.expect("start_world")
        watcher.until(lambda: any(row["procs"] == "0-1" for row in watcher.jobs(job)))
        node.exit(start)
        watcher.until_kind("job.ended")
        watcher.until(lambda: any(row["state"] == "COMPLETED" for row in watcher.jobs(job)))
        stored = user.do("history", id=job)["events"]
    assert [event for event in watcher.events if event["job"] == job] == stored
    numbers = [event["seq"] for event in watcher.events]
    assert numbers == sorted(set(numbers))


def test_a_subscriber_continues_after_the_last_event(server: Server, node: Controller) -> None:
    with server.user() as user:
        job = user.submit(sizes="1")
        node.exit(node.expect("start_world"))
        user.do("wait", id=job)
        stored = user.do("history", id=job)["events"]
        with server.user() as other:
            watcher = Watcher(other, id=job, after=stored[1]["seq"])
            watcher.until_kind("job.ended")
        assert watcher.events == stored[2:]
        assert "jobs" not in watcher.first


@pytest.mark.usefixtures("node")
def test_events_since_a_time_are_sent(server: Server) -> None:
    with server.user() as user, server.user() as other:
        user.submit(sizes="1", hold=True)
        # The history may still miss the latest event, which a watcher then gets, too.
        last = user.do("history")["events"][-1]
        watcher = Watcher(other, since=last["time"])
        watcher.until(lambda: last in watcher.events)


@pytest.mark.usefixtures("node")
def test_a_node_that_changes_its_state_is_sent(server: Server) -> None:
    with server.user() as user, server.user() as other:
        watcher = Watcher(other)
        user.do("drain", node="n1", reason="fan")
        rows: list[Message] = []

        def drained() -> bool:
            rows.extend(row for message in watcher.messages for row in message.get("nodes", ()))
            return any(row["state"] == "DRAINED" for row in rows)

        watcher.until(drained)
        watcher.until_kind("node.state")
    data = next(event["data"] for event in watcher.events if event["kind"] == "node.state")
    assert (data["node"], data["reason"]) == ("n1", "fan")


@pytest.mark.usefixtures("node")
def test_lines_of_a_burst_arrive_in_order(server: Server) -> None:
    with server.user() as user, server.user() as other:
        watcher = Watcher(other)
        numbers = [user.submit(sizes="1", hold=True) for _ in range(50)]

        def submitted() -> list[int]:
            return [e["job"] for e in watcher.events if e["kind"] == "job.submitted"]

        watcher.until(lambda: len(submitted()) == len(numbers))
    assert submitted() == numbers


def test_a_request_with_a_wrong_field_is_refused(server: Server) -> None:
    wrong: list[Message] = [{"after": "x"}, {"since": "x"}, {"id": 9}]
    for fields in wrong:
        with server.user() as user:
            answer = user.ask("watch", **fields)
        assert answer["error"]["field"] in fields


@pytest.mark.usefixtures("node")
def test_a_subscriber_that_leaves_is_forgotten(server: Server) -> None:
    for _ in range(20):
        with server.user() as user:
            user.do("watch")
    with server.user() as user:
        Watcher(user)
    with server.user() as user:
        assert user.do("ping")["nodes"] == 1
    assert "Traceback" not in server.log()


def test_a_stop_ends_subscriptions(server: Server) -> None:
    with server.user() as user:
        user.do("watch")
        assert server.stop() == 0
        with pytest.raises(ConnectionError):
            receive_all(user)


@pytest.mark.usefixtures("node")
def test_a_reader_that_reads_nothing_does_not_delay_others(server: Server) -> None:
    with server.user() as slow, server.user() as user, server.user() as other:
        slow.send(json.dumps({"op": "watch"}).encode() + b"\n")
        watcher = Watcher(other)
        command = ["sleep", "x" * 20_000]
        numbers = [user.submit(sizes="1", hold=True, argv=command) for _ in range(60)]
        watcher.until(lambda: bool(watcher.jobs(numbers[-1])))


@pytest.mark.usefixtures("node")
def test_all_lines_are_in_the_database_before_they_are_sent(server: Server) -> None:
    with server.user() as user, server.user() as other:
        watcher = Watcher(other)
        user.submit(sizes="1", hold=True)
        watcher.until_kind("job.submitted")
        sent = watcher.events[-1]["seq"]
        with closing(sqlite3.connect(server.state / "pliant.db")) as database:
            wait_until(
                lambda: database.execute("SELECT max(seq) FROM job_event").fetchone()[0] >= sent,
                what="the stored line",
            )


def test_the_client_misses_no_event_over_a_restart(server: Server) -> None:
    with server.user() as user:
        node = server.controller(slots=4).welcome()
        user.submit(sizes="1", hold=True)
    seen: list[Event] = []
    with Client(str(server.run)) as client:
        events = client.events(after=0)
        while not seen or seen[-1].kind != "job.submitted":
            seen.append(next(events))
        node.close()
        server.stop()
        server.start()
        with server.user() as user:
            user.do("cancel", ids=[seen[-1].job])
        while seen[-1].kind != "job.ended":
            seen.append(next(events))
        stored = client.history()
    expected = [event.seq for event in stored if event.seq <= seen[-1].seq]
    assert [event.seq for event in seen] == expected

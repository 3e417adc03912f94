"""Which messages a line of the history gives."""

from __future__ import annotations

import pytest

from pliant.server.notifications.messages import events_of, message_of, subject, wants_messages
from pliant.server.support.notify_rules import parse_events


@pytest.mark.parametrize(
    ("state", "wanted", "events"),
    [
        ("TIMEOUT", "all", ["limit", "fail"]),
        ("TIMEOUT", "limit,end", ["limit", "end"]),
        ("TIMEOUT", "limit", ["limit"]),
        ("TIMEOUT", "end,fail", ["fail"]),
        ("TIMEOUT", "start", []),
        ("FAILED", "all", ["fail"]),
        ("FAILED", "end", ["end"]),
        ("COMPLETED", "all", ["end"]),
        ("CANCELLED", "all", ["end"]),
        ("CANCELLED", "fail", []),
    ],
)
def test_an_end_gives_the_chosen_events(state: str, wanted: str, events: list[str]) -> None:
    line = {"kind": "job.ended", "data": {"state": state}}
    assert events_of(line, frozenset(parse_events(wanted))) == events


@pytest.mark.parametrize(
    ("info", "wanted", "told"),
    [
        ({"id": 5}, "end", True),
        ({"id": 5}, "end,tasks", True),
        ({"id": 17, "array": {}}, "end", True),
        ({"id": 17, "array": {}}, "end,tasks", False),
        ({"id": 21, "array_job": 17, "array_task": 3}, "end", False),
        ({"id": 21, "array_job": 17, "array_task": 3}, "tasks", True),
    ],
)
def test_an_array_sends_messages_for_itself_or_for_its_tasks(
    info: dict[str, object], wanted: str, told: bool
) -> None:
    assert wants_messages(info, frozenset(parse_events(wanted))) == told


def test_the_message_of_a_task_names_the_task() -> None:
    info = {"id": 21, "name": "a", "user": "ann", "state": "FAILED", "size": 1}
    line = {"kind": "job.ended", "seq": 1, "time": 0.0, "text": "", "data": {"state": "FAILED"}}
    message = message_of(line, "fail", info | {"array_job": 17, "array_task": 3}, "c")
    assert (message["array_job"], message["array_task"]) == (17, 3)
    assert "17_3" in subject(message)


def test_other_lines_give_at_most_one_event() -> None:
    every = frozenset(parse_events("all"))
    kinds = ("job.started", "array.started", "job.resized", "job.warned", "job.queued")
    found = [events_of({"kind": kind, "data": {}}, every) for kind in kinds]
    assert found == [["start"], ["start"], ["resize"], ["limit"], []]

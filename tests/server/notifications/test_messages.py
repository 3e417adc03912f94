"""Which messages a line of the history gives."""

from __future__ import annotations

import pytest

from pliant.server.notifications.messages import events_of
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


def test_other_lines_give_at_most_one_event() -> None:
    every = frozenset(parse_events("all"))
    kinds = ("job.started", "job.resized", "job.warned", "job.queued")
    found = [events_of({"kind": kind, "data": {}}, every) for kind in kinds]
    assert found == [["start"], ["resize"], ["limit"], []]

from __future__ import annotations

from typing import Any

import pytest

from pliant.client.terminal.event_text import history_text, sentence, timeline


def event(time: float, kind: str, job: int | None = 1, **data: Any) -> dict[str, Any]:
    return {"seq": 0, "time": time, "job": job, "kind": kind, "text": "words", "data": data}


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("job.started", {"processors": [3]}, "on 1 processor"),
        ("job.ended", {"state": "FAILED", "exit_code": 3}, "FAILED with exit code 3"),
        ("job.ended", {"state": "FAILED", "signal": 9}, "FAILED by signal 9"),
        ("offer.sent", {"direction": "release", "from": 8, "size": 4}, "release 8 -> 4"),
        ("offer.answered", {"answer": "ACCEPT", "size": 4}, "ACCEPT of 4"),
        ("resize.rolled_back", {"stage": "join", "reason": "\x1b"}, "at join: \\x1b"),
        ("anything", {}, "words"),
        (
            "job.resized",
            {
                "direction": "grow",
                "from": 2,
                "to": 4,
                "seconds": {"join": 0.02},
                "bytes_moved": 2048,
            },
            "grow 2 -> 4 (join 20 ms) 2 KiB moved",
        ),
    ],
)
def test_each_event_has_its_sentence(kind: str, data: dict[str, Any], text: str) -> None:
    assert sentence(event(0.0, kind, **data)) == text


def test_timeline_has_times_since_the_start() -> None:
    events = [event(100.0, "job.submitted"), event(101.25, "offer.sent", 2), event(102, "other")]
    _, first, second = timeline(events, {1: "heat"}, start=99.5).splitlines()
    assert first.split()[:3] == ["0.500", "heat", "(1)"]
    assert second.split()[:3] == ["1.750", "job", "(2)"]


def test_nothing_happened() -> None:
    assert timeline([], {}) == "no job was submitted"
    assert history_text([]) == "nothing has happened yet"


def test_repetitions_of_an_event_are_one_line() -> None:
    events = [event(at, "processors.released") for at in (1.0, 2.0, 3.0)]
    lines = history_text([*events, event(4.0, "job.ended", state="COMPLETED")]).splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("(3 times)")

"""``pliant history`` without a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pliant.client.accounting.history import main


def event(seq: int, time: float) -> dict[str, Any]:
    data = {"processors": [0, 1]}
    return {"seq": seq, "time": time, "kind": "job.started", "job": 3, "text": "", "data": data}


def test_events_of_a_job(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["history"] = {"events": [event(1, 10.0), event(2, 20.0)]}
    assert main(["3"]) == 0
    assert server.last == {"op": "history", "id": 3}
    assert "on 2 processors" in capsys.readouterr().out


def test_events_as_json(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["history"] = {"events": [event(1, 10.0)]}
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [event(1, 10.0)]


def test_only_events_since_a_time(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["history"] = {"events": [event(1, 10.0)]}
    assert main(["--since", "1h", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_events_since_a_time_are_complete(
    server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    late = 4e9  # in the future, so after any time that can be named
    pages = iter(
        [
            {"events": [event(1, late)], "next": 7},
            {"events": [], "next": 9},
            {"events": [event(10, late)]},
        ]
    )
    server.answers["history"] = lambda _: next(pages)
    assert main(["--since", "1h", "--json"]) == 0
    assert [line["seq"] for line in json.loads(capsys.readouterr().out)] == [1, 10]
    assert [request.get("after") for request in server.requests] == [None, 7, 9]


def test_a_cut_list_says_so(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["history"] = {"events": [event(1, 10.0)], "complete": False}
    assert main([]) == 0
    assert "--since" in capsys.readouterr().err


def test_wrong_usage() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["x"])
    assert caught.value.code == 2

from __future__ import annotations

import json
from typing import Any

import pytest

from pliant.client.commands import jobdel, node
from pliant.client.commands.jobctl import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("action", ["hold", "release"])
def test_hold_and_release(server: Any, action: str, capsys: Capture) -> None:
    assert main([action, "4"]) == 0
    assert server.last == {"op": action, "id": 4}
    assert main([action, "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": 4}


def test_resize_sends_the_size_and_prints_what_happens(server: Any, capsys: Capture) -> None:
    server.answers["resize"] = {"message": "offered 2"}
    assert main(["resize", "4", "2", "--release", "n2", "n1/0", "--release", "n3"]) == 0
    assert server.last == {"op": "resize", "id": 4, "size": 2, "release": ["n2", "n1/0", "n3"]}
    assert capsys.readouterr().out == "offered 2\n"


def test_a_size_of_zero_gives_the_job_back_to_the_strategy(server: Any) -> None:
    server.answers["resize"] = {"message": "resized by the strategy again"}
    assert main(["resize", "4", "0"]) == 0
    assert server.last == {"op": "resize", "id": 4, "size": 0, "release": []}


@pytest.mark.parametrize("number", ["7", "-7", "+0"])
def test_priority(server: Any, number: str, capsys: Capture) -> None:
    server.answers["priority"] = {"message": "job 4: priority 7"}
    assert main(["priority", "4", number]) == 0
    assert server.last == {"op": "priority", "id": 4, "priority": int(number)}
    assert capsys.readouterr().out == "job 4: priority 7\n"


@pytest.mark.parametrize("number", ["1000001", "1.5", "high", ""])
def test_what_is_no_priority(number: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["priority", "4", number])
    assert "write a whole number from -1000000 to 1000000" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["4", "2", "--release", place] for place in ("n1/x", "/0", "n1/٣")]
)
def test_wrong_resizes(words: list[str], capsys: Capture) -> None:
    assert main(["resize", *words]) == 2
    assert capsys.readouterr().err.startswith("jobctl: ")


@pytest.mark.parametrize("words", [[], ["bogus"], ["hold"], ["hold", "x"], ["resize", "4"]])
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)


@pytest.mark.parametrize("number", ["-1", "1_x", " 3", "= 3", "٣", "", "9" * 20])
def test_what_is_no_number(number: str, capsys: Capture) -> None:
    for words in (["resize", number, "2"], ["resize", "4", number], ["why", number]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert "write " in capsys.readouterr().err


def test_why_prints_the_reasons_and_json_adds_facts(server: Any, capsys: Capture) -> None:
    server.answers["why"] = {"text": ["it waits", "for \x1b[1mmore"], "facts": {"free": 2}}
    assert main(["why", "4"]) == 0
    assert capsys.readouterr().out == "it waits\nfor \\x1b[1mmore\n"
    assert main(["why", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"] == {"free": 2}


def test_history(server: Any, capsys: Capture) -> None:
    events = [
        {"seq": 1, "time": 100.0, "job": 4, "kind": "job.submitted", "text": "by ada", "data": {}},
        {
            "seq": 2,
            "time": 103.5,
            "job": 4,
            "kind": "job.resized",
            "text": "",
            "data": {"direction": "shrink", "from": 8, "to": 4},
        },
    ]
    server.answers["history"] = {"events": events}
    assert main(["history", "4"]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[1:] == ["+0.0s", "job.submitted", "by", "ada"]
    assert second.split()[1:] == ["+3.5s", "job.resized", "shrink", "8", "->", "4"]
    assert main(["history", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == events


def test_refusals_and_no_server(server: Any, capsys: Capture) -> None:
    server.refuse("hold", "job 4 runs already")
    assert main(["hold", "4"]) == 1
    assert capsys.readouterr().err == "jobctl: job 4 runs already\n"
    server.close()
    assert main(["hold", "4"]) == 3


def test_jobdel(server: Any, capsys: Capture) -> None:
    results = [{"id": 1, "ok": True}, {"id": 2, "ok": False, "error": {"message": "no such job"}}]
    server.answers["cancel"] = {"results": results}
    assert jobdel.main(["1", "2"]) == 1
    assert server.last == {"op": "cancel", "ids": [1, 2]}
    assert capsys.readouterr() == ("", "jobdel: job 2: no such job\n")
    server.answers["cancel"] = {"results": results[:1]}
    assert jobdel.main(["1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == results[:1]
    assert jobdel.main([]) == 2


def test_drain_and_resume(server: Any) -> None:
    assert node.main(["drain", "n1", "n2", "--reason", "disk"]) == 0
    assert server.requests == [
        {"op": "drain", "node": "n1", "reason": "disk"},
        {"op": "drain", "node": "n2", "reason": "disk"},
    ]
    assert node.main(["resume", "n1"]) == 0
    assert server.last == {"op": "resume", "node": "n1"}


def test_refused_requests_are_listed(server: Any, capsys: Capture) -> None:
    data = {"user": "ada", "uid": 7, "operation": "submit", "sizes": "999", "not_recorded": 3}
    event = {"seq": 1, "time": 5.0, "kind": "request.refused", "text": "submit: too wide"}
    server.answers["refusals"] = {"events": [{**event, "data": data}]}
    assert main(["refused"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert "ada" in line
    assert "sizes 999" in line
    assert "too wide (3 more before)" in line
    assert main(["refused", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["data"] == data

"""``pliant what-if`` and ``jobsub --what-if``: the queue under other strategies, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pliant.client.commands.jobsub import main as jobsub
from pliant.client.forecasts.what_if_command import main

Capture = pytest.CaptureFixture[str]
NOW = 1.8e9


def row(number: int, **values: Any) -> dict[str, Any]:
    job: dict[str, Any] = {"id": number, "name": f"job{number}", "user": "ann", "account": ""}
    job |= {"arrival": NOW - 100 + number, "sizes": "4", "prefer": None, "requested": 4}
    job |= {"estimate_s": 100.0, "limit_s": None, "speedup": "linear", "measured": {}}
    job |= {"contract": None, "priority": 0, "node_needs": None, "start": None, "ranks": []}
    return job | {"malleable": False, "done": 0.0} | values


@pytest.fixture
def asked(server: Any) -> Any:
    """Return a server with a long job before a short one."""
    node = {"name": "n1", "cluster": "default", "first": 0, "slots": 4, "memory_bytes": 0}
    server.answers["snapshot"] = {
        "jobs": [row(1), row(2, estimate_s=10.0)],
        "nodes": [node | {"gres": {}, "properties": []}],
        "left_out": {"held": 3, "suspended": 0, "dependent": 0, "ending": 0},
        "jobs_with_resources": 0,
        "users_are_limited": False,
        "strategy": "fcfs",
        "options": {},
        "all_values": False,
        "now": NOW,
    }
    return server


@pytest.mark.usefixtures("asked")
def test_two_strategies_side_by_side(capsys: Capture) -> None:
    assert main(["sjf"]) == 0
    text = capsys.readouterr().out
    lines = {line.split()[0]: line for line in text.splitlines() if line[:1].isdigit()}
    assert "fcfs (in force), 1: sjf" in text
    assert lines["2"].endswith("-1m40s")
    assert "3 jobs: they are held" in text
    assert "operators only" in text


@pytest.mark.usefixtures("asked")
def test_json(capsys: Capture) -> None:
    assert main(["--json", "sjf"]) == 0
    found = json.loads(capsys.readouterr().out)
    ends = [outcome["jobs"]["2"]["end"] for outcome in found["outcomes"]]
    assert ends == pytest.approx([110, 10])


def test_a_job_that_is_not_submitted(
    asked: Any, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert jobsub(["--what-if", "sjf", "-n", "4", "--estimate", "5s", "true"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("this"))
    assert line.endswith("-1m50s")
    assert [request["op"] for request in asked.requests] == ["snapshot"]


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "nonsense"),
        (["fpsma", "-o", "cap=x"], "cap"),
    ],
)
def test_a_strategy_that_cannot_be_simulated(words: list[str], says: str, capsys: Capture) -> None:
    assert main(words) == 1
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["--what-if", "sjf", "--wait"],
        ["--what-if", "sjf", "--query"],
        ["--what-if", "sjf", "--bid", "a"],
        ["--what-if", "sjf", "-C", "fast"],
    ],
)
def test_options_that_make_no_sense_with_it(words: list[str], asked: Any, capsys: Capture) -> None:
    assert jobsub([*words, "true"]) == 2
    assert "--what-if" in capsys.readouterr().err
    assert not [request for request in asked.requests if request["op"] == "submit"]


def test_an_empty_queue(asked: Any, capsys: Capture) -> None:
    asked.answers["snapshot"] = {**asked.answers["snapshot"], "jobs": []}
    assert main(["sjf"]) == 2
    assert "nothing to simulate" in capsys.readouterr().err


@pytest.mark.usefixtures("asked")
def test_a_module_in_the_working_directory_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('planted')\n")
    monkeypatch.chdir(tmp_path)
    assert main(["sjf"]) == 0

"""``jobacct``, ``pliant stats`` and ``pliant audit`` with a server that only pretends."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from pliant.client.accounting import audit, jobacct, stats

Capture = pytest.CaptureFixture[str]
MakeJob = Callable[..., dict[str, Any]]


@pytest.fixture
def used(server: Any, make_job: MakeJob) -> Any:
    now = time.time()
    jobs = [
        make_job(1, state="COMPLETED", submit=now - 90, start=now - 80, end=now - 20, exit_code=0),
        make_job(2, state="RUNNING", submit=now - 50, start=now - 40),
    ]
    known = {"run": 1, "nodes": ["n1"]}
    phases = [
        {"job": 1, "start": now - 80, "end": now - 50, "processors": 2, **known},
        {"job": 1, "start": now - 50, "end": now - 20, "processors": 4, **known},
        {"job": 2, "start": now - 40, "end": None, "processors": 1, **known},
    ]
    server.answers["jobs"] = {"jobs": jobs, "now": now}
    server.answers["accounting"] = {
        **{"phases": phases, "complete": True, "now": now, "all_users": True}
    }
    node = {"name": "n1", "slots": 8, "used": 1, "state": "UP"}
    server.answers["nodes"] = {"nodes": [node], "strategy": "fcfs"}
    return server


def test_jobs_with_their_sizes_over_time(used: Any, capsys: Capture) -> None:
    assert jobacct.main(["--user", "ada"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("2 for 30s, 4 for 30s")
    assert "180" in lines[1].split()
    asked = {request["op"]: request for request in used.requests}
    assert asked["jobs"]["users"] == ["ada"]
    assert asked["accounting"]["ids"] == [1, 2]


@pytest.mark.usefixtures("used")
def test_csv_json_and_swf(capsys: Capture) -> None:
    assert jobacct.main(["-a", "--csv"]) == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert first["id"] == "1"
    assert float(first["processor_s"]) == pytest.approx(180.0)
    assert second["end"] == ""
    assert jobacct.main(["-a", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found[0]) == {*jobacct.FIELDS, "phases", "steps"}
    assert jobacct.main(["-a", "--swf"]) == 0
    swf = capsys.readouterr().out
    assert "; MaxProcs: 8" in swf
    assert len([line for line in swf.splitlines() if not line.startswith(";")]) == 1


def test_csv_names_tasks_and_escapes_what_a_terminal_would_interpret(
    used: Any, make_job: MakeJob, capsys: Capture
) -> None:
    task = make_job(3, name="a\x1b[2J\nb,c", array_job=17, array_task=4)
    rest = make_job(17, array={"pending": 2, "cancelled_tasks": ""}, tasks="5-6")
    used.answers["jobs"]["jobs"] += [task, rest]
    assert jobacct.main(["-a", "--csv"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 5
    first, _, third, last = csv.DictReader(io.StringIO(text))
    assert [first[name] for name in jobacct.ARRAY_FIELDS] == ["", "", ""]
    assert [third[name] for name in ("id", *jobacct.ARRAY_FIELDS)] == ["3", "17", "4", ""]
    assert third["name"] == r"a\x1b[2J\nb,c"
    assert (last["id"], last["tasks"]) == ("17", "5-6")


def test_steps_of_scripts(used: Any, capsys: Capture) -> None:
    known = {"job": 1, "run": 1, "start": 5.0, "end": 65.0, "signal": 0}
    used.answers["accounting"]["steps"] = [
        {**known, "step": 1, "name": "prepare", "processors": 1, "exit_code": 0}
        | {"processor_s": 60.0, "sizes": [[5.0, 1]]},
        {**known, "step": 2, "name": "a\x1b", "processors": 4, "exit_code": 7}
        | {"processor_s": 140.0, "sizes": [[5.0, 4], [15.0, 2]]},
    ]
    assert jobacct.main(["-a", "--steps"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    _, first, second = text.splitlines()
    assert first.split()[:4] == ["1", "1", "1", "prepare"]
    assert first.split()[-6:] == ["1m00s", "0:0", "60", "1", "for", "1m00s"]
    assert second.split()[-8:] == ["7:0", "140", "4", "for", "10s,", "2", "for", "50s"]
    assert used.requests[-1]["steps"] is True
    assert jobacct.main(["-a", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert [step["name"] for step in one["steps"]] == ["prepare", "a\x1b"]
    assert set(one["steps"][0]) == set(jobacct.STEP_FIELDS)
    assert [phase["processor_s"] for phase in one["steps"][1]["phases"]] == [40.0, 100.0]
    assert two["steps"] == []


def test_own_jobs_are_the_default(used: Any) -> None:
    assert jobacct.main([]) == 0
    assert len(used.requests[0]["users"]) == 1
    assert jobacct.main(["-a"]) == 0
    assert "users" not in used.requests[2]
    assert jobacct.main(["1", "9"]) == 1
    assert used.requests[4]["ids"] == [1, 9]


@pytest.mark.parametrize("by", ["user", "account", "day", "name", "state"])
@pytest.mark.usefixtures("used")
def test_sums(capsys: Capture, by: str) -> None:
    assert jobacct.main(["-a", "--sum", by, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sum(row["processor_s"] for row in rows) == pytest.approx(220.0, abs=1.0)


def test_an_incomplete_answer_is_an_error(used: Any, capsys: Capture) -> None:
    used.answers["jobs"]["complete"] = False
    assert jobacct.main(["-a"]) == 1
    assert "--since" in capsys.readouterr().err


@pytest.mark.usefixtures("used")
def test_statistics(capsys: Capture) -> None:
    assert stats.main(["--since", "100s", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["states"] == {"COMPLETED": 1, "RUNNING": 1}
    assert found["utilization"] == pytest.approx(220 / 800, rel=0.05)
    assert (found["mean_wait_s"], found["all_users"]) == (pytest.approx(10.0), True)
    assert stats.main([]) == 0
    assert "fcfs" in capsys.readouterr().out


def test_the_audit_selects_and_escapes(server: Any, capsys: Capture) -> None:
    known = {"seq": 1, "time": 5.0, "job": None, "text": "no"}
    server.answers["audit"] = {
        "complete": True,
        "events": [
            {**known, "user": "ann", "operation": "submit", "result": "done", "job": 3, "data": {}},
            {
                **known,
                **{"user": "bob", "operation": "cancel", "result": "refused"},
                "data": {"ids": "[3]\x1b"},
            },
        ],
    }
    assert audit.main([]) == 0
    text = capsys.readouterr().out
    assert "job 3" in text
    assert "\x1b" not in text
    assert audit.main(["--refused", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (list(only), only["user"]) == (list(audit.FIELDS), "bob")
    assert audit.main(["--user", "ann", "--operation", "cancel", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []

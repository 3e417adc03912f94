"""``pliant share`` and ``pliant accounting``: what they ask for and print."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from pliant.client.commands import usage

Capture = pytest.CaptureFixture[str]


def phase(
    job: int, start: float, end: float | None, processors: int, **more: Any
) -> dict[str, Any]:
    row = {"job": job, "run": 1, "user": "ann", "account": "bio", "start": start, "end": end}
    return {**row, "processors": processors, "nodes": ["n1"], **more}


@pytest.fixture
def phases(server: Any) -> Any:
    server.answers["accounting"] = {
        "phases": [
            phase(1, 100.0, 110.0, 4),
            phase(1, 110.0, 120.0, 2),
            phase(2, 115.0, None, 8, user="bob", account=""),
        ],
        "complete": True,
        "now": 120.0,
    }
    return server


@pytest.mark.usefixtures("phases")
def test_phases_as_a_table(capsys: Capture) -> None:
    assert usage.accounting(["1", "2"]) == 0
    head, *rows, _, total = capsys.readouterr().out.splitlines()
    assert head.split() == list(usage.FIELDS)
    assert [row.split()[-3:] for row in rows] == [
        ["4", "40", "n1"],
        ["2", "20", "n1"],
        ["8", "40", "n1"],
    ]
    assert "running" in rows[2]
    assert total.startswith("100 processor-seconds")


@pytest.mark.usefixtures("phases")
def test_sums_of_a_window(capsys: Capture) -> None:
    assert usage.accounting(["1", "2", "--sum", "user", "--json"]) == 0
    ann, bob = json.loads(capsys.readouterr().out)
    assert ann == {"user": "ann", "jobs": 1, "phases": 2, "processor_s": 60.0}
    assert bob == {"user": "bob", "jobs": 1, "phases": 1, "processor_s": 40.0}
    cut = usage.with_seconds(phase(1, 100.0, 110.0, 4), 105.0, 108.0, 200.0)
    assert cut["processor_s"] == 12.0
    assert usage.with_seconds(phase(1, 100.0, None, 4), 300.0, None, 200.0)["processor_s"] == 0


@pytest.mark.usefixtures("phases")
def test_csv(capsys: Capture) -> None:
    assert usage.accounting(["1", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["start"], row["end"]) for row in rows] == [
        ("100.0", "110.0"),
        ("110.0", "120.0"),
        ("115.0", ""),
    ]


def test_what_is_asked_for(phases: Any) -> None:
    assert usage.accounting(["--user", "bob", "--until", "1970-01-02"]) == 0
    asked = phases.requests[-1]
    assert (asked["user"], asked["account"], asked["ids"]) == ("bob", None, None)
    assert asked["since"] is not None
    phases.answers["accounting"]["complete"] = False
    assert usage.accounting(["7"]) == 1
    with pytest.raises(SystemExit) as error:
        usage.accounting(["--since", "yesterday-ish"])
    assert error.value.code == 2


def test_shares(server: Any, capsys: Capture) -> None:
    row = {
        "account": "",
        "user": "ann",
        "shares": 2.0,
        "normalised_shares": 2 / 3,
        "seconds": 60.4,
        "normalised_usage": 0.5,
        "factor": 0.6,
        "processors": 4,
    }
    server.answers["shares"] = {
        "half_life_s": None,
        "shares": [row, row | {"user": "bob"}],
        "now": 1.0,
    }
    assert usage.share(["--user", "ann"]) == 0
    _, line, _, decay = capsys.readouterr().out.splitlines()
    assert line.split() == ["-", "ann", "2", "0.6667", "60", "0.5000", "0.6000", "4"]
    assert decay == "no decay"
    assert usage.share(["--json"]) == 0
    assert [each["user"] for each in json.loads(capsys.readouterr().out)["shares"]] == [
        "ann",
        "bob",
    ]

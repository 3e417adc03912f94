"""The board for Grafana and the alert rules: their form, and that they use metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from pliant.client.metrics.metrics_command import main
from testkit import ROOT

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

from pliant.client.metrics.families import COUNTERS, HISTOGRAMS, exposition

#: Types of panels, with the options that Grafana needs for each.
PANELS = {
    "row": set[str](),
    "timeseries": {"legend", "tooltip"},
    "stat": {"reduceOptions"},
    "bargauge": {"reduceOptions"},
}


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--print", name]) == 0
    return capsys.readouterr().out


@pytest.fixture
def board(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed("board", capsys))
    return found


@pytest.fixture
def rules(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(printed("alerts", capsys))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def existing() -> dict[str, set[str]]:
    """Return the labels of each series of the endpoint, by its name."""
    answer = {
        "counters": {key: [[["a"] * len(f.labels), 1]] for key, f in COUNTERS.items()},
        "histograms": {
            key: {"bounds": [1], "series": [[["a"] * len(f.labels), [1, 1], 1.0]]}
            for key, f in HISTOGRAMS.items()
        },
        "jobs": {"PENDING": 1},
        "nodes": [
            {"name": "n", "state": "UP", "spare": False, "slots": 1, "used": 0, "connected": True}
        ],
        "applications": 0,
        "strategy": "fcfs",
        "server": {"generation": 1, "started": 1.0, "version": "1"},
    }
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(exposition(answer).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {"instance"}).update(sample.labels)
    return found


def check_expressions(expressions: list[str]) -> None:
    """Check that each expression uses metrics and labels that the endpoint has."""
    series = existing()
    assert expressions
    for text in expressions:
        names = re.findall(r"\bpliant_\w+", text)
        assert names, text
        labels = set(re.findall(r"(\w+)=~?\"", text))
        for each in re.findall(r"\bby \(([^)]*)\)", text):
            labels.update(each.replace(",", " ").split())
        assert set(names) <= series.keys(), text
        assert labels <= set().union(*(series[name] for name in names)), text


def texts(value: object, key: str) -> Iterator[str]:
    """Yield the values of a key anywhere in a JSON object."""
    if isinstance(value, dict):
        yield from (v for k, v in value.items() if k == key and isinstance(v, str))
        for each in value.values():
            yield from texts(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, key)


def test_the_board_uses_metrics_that_exist(board: dict[str, Any]) -> None:
    check_expressions(list(texts(board, "expr")))


def test_every_family_is_on_the_board(board: dict[str, Any]) -> None:
    used = " ".join(texts(board, "expr"))
    families = [family.name for family in (*COUNTERS.values(), *HISTOGRAMS.values())]
    assert [name for name in families if name not in used] == []


def test_the_panels_have_the_form_that_grafana_reads(board: dict[str, Any]) -> None:
    assert {"uid", "title", "schemaVersion", "time", "templating", "panels"} <= board.keys()
    variables = {each["name"]: each["type"] for each in board["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert PANELS[panel["type"]] <= panel["options"].keys()
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)) > 0


def test_panels_do_not_overlap(board: dict[str, Any]) -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in board["panels"]]
    assert all(0 <= p["x"] < p["x"] + p["w"] <= 24 for _, p in places)
    for (one, a), (other, b) in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one, other)


def test_the_alerts_use_metrics_that_exist(rules: list[dict[str, Any]]) -> None:
    check_expressions([rule["expr"] for rule in rules])
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_page_has_every_alert(rules: list[dict[str, Any]]) -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    table = page.partition("| alert |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(Pliant\w+)`", table)) == {rule["alert"] for rule in rules}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool of Prometheus")
def test_prometheus_takes_metrics_and_alerts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "alerts.yaml"
    file.write_text(printed("alerts", capsys))
    done = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = exposition(None).decode()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

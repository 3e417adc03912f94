"""The text that Prometheus reads."""

from __future__ import annotations

import re
from typing import Any

import pytest

from testkit import ROOT

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

from pliant.client.metrics.families import COUNTERS, HISTOGRAMS, exposition

#: Suffixes of the samples of a histogram.
_SUFFIXES = r"_(bucket|sum|count|created)$"


def answer(**changes: Any) -> dict[str, Any]:
    """Return an answer in which every counter and histogram has a series."""
    return {
        "counters": {key: [[["a"] * len(family.labels), 3]] for key, family in COUNTERS.items()},
        "histograms": {
            key: {"bounds": [1, 2.5], "series": [[["a"] * len(family.labels), [4, 2, 1], 9.5]]}
            for key, family in HISTOGRAMS.items()
        },
        "jobs": {"PENDING": 7},
        "nodes": [node("n1"), node("n2", state="DOWN", used=0, connected=False)],
        "applications": 2,
        "strategy": "fcfs",
        "server": {"generation": 3, "started": 1e9, "version": "1.2"},
        "now": 1e9,
        **changes,
    }


def node(name: str, **changes: Any) -> dict[str, Any]:
    row = {"name": name, "cluster": "", "state": "UP", "spare": False, "slots": 4, "used": 3}
    return {**row, "connected": True, **changes}


def samples(given: dict[str, Any] | None) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exposition(given).decode())
        for sample in family.samples
    }


def names() -> set[str]:
    """Return the names of all metrics, of a histogram without suffixes."""
    histograms = {family.name for family in HISTOGRAMS.values()}
    found = set()
    for name, *_ in samples(answer()):
        short = re.sub(_SUFFIXES, "", name)
        found.add(short if short in histograms else name)
    return found


def test_without_a_server_only_this_is_said() -> None:
    assert samples(None) == {("pliant_up",): 0}


def test_buckets_are_cumulated() -> None:
    found = samples(answer())
    assert [found["pliant_commit_seconds_bucket", le] for le in ("1.0", "2.5", "+Inf")] == [4, 6, 7]
    assert found["pliant_commit_seconds_count",] == 7
    assert found["pliant_commit_seconds_sum",] == 9.5


def test_processors_of_nodes_that_are_down_or_spare_are_not_usable() -> None:
    rows = [node("n1"), node("n2", state="DOWN", used=0), node("n3", spare=True, used=0)]
    found = samples(answer(nodes=rows))
    assert found["pliant_processors",] == 8
    assert found["pliant_processors_usable",] == 4
    assert found["pliant_processors_held",] == 3
    assert found["pliant_node_up", "n2"] == 0


def test_labels_cannot_break_the_text() -> None:
    name = 'a"} 1\npliant_up 5\\'
    found = samples(answer(nodes=[node(name)]))
    assert found["pliant_node_processors", name] == 4
    assert found["pliant_up",] == 1


def test_counters_have_their_usual_values_from_the_start() -> None:
    found = samples(answer(counters={}))
    assert found["pliant_jobs_ended_total", "FAILED"] == 0
    assert found["pliant_job_starts_total",] == 0


def test_the_page_has_every_metric() -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    assert set(re.findall(r"^\| `(pliant_\w+)` \|", page, re.M)) == names()

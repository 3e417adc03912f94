"""Runs of experiments with time-shared nodes, read from data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pliant.simulator.experiments.definition.reading import read_experiment
from pliant.simulator.experiments.results import conclude
from pliant.simulator.experiments.running.measuring import measure
from pliant.simulator.experiments.running.results_store import ResultsStore
from pliant.simulator.experiments.running.tasks import is_metric, run_task
from pliant.simulator.time_shared.measures import SHARED_DESCRIPTIONS

SPEC: dict[str, Any] = {
    "workload": "chen",
    "parameters": {"group": 2, "trace": 5},
    "jobs": 8,
    "strategy": "v-reconfiguration",
    "options": {"max-reserved": 0.5},
    "time_shared": {"nodes": 2, "memory_mb": 128, "ramp": 0},
}

SMALL = """
title: Small
source: nobody
run:
  workload: chen
  jobs: 12
  parameters: {group: 2}
  time_shared: {nodes: 2, memory_mb: 128, slots: 3}
seeds: 2
compare: strategy
variants:
  G: {strategy: load-sharing}
  V: {strategy: v-reconfiguration, options: {max-reserved: 0.5}}
sweep: {trace: [5]}
vary: {trace: parameters.trace}
metrics: {execution_s: {}, reservations: {}}
claims:
  - {metric: execution_s, of: V, above: G, at_most: 0}
"""


def test_a_run_has_all_metrics_and_is_the_same_again() -> None:
    metrics = run_task(SPEC, 1)
    assert list(metrics) == list(SHARED_DESCRIPTIONS)
    assert all(is_metric(name) for name in metrics)
    assert run_task(SPEC, 1) == metrics
    assert run_task(SPEC, 2) != metrics
    other = run_task({**SPEC, "strategy": "load-sharing", "options": {}}, 1)
    assert other["cpu_s"] == metrics["cpu_s"], "the jobs are the same under each strategy"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workload": "lublin"}, "workload: expected chen"),
        ({"time_shared": {"speeds": 1}}, "time_shared.speeds: not known"),
        ({"time_shared": {"slots": 1.5}}, "time_shared.slots: expected int"),
        ({"time_shared": {"overlap": 1}}, "time_shared.overlap: expected bool"),
        ({"parameters": {"group": 7}}, "group: expected 1 or 2"),
        ({"settings": {"seed": 1}}, "settings: not known with time_shared"),
        ({"options": {"max-reserved": 2}}, "max-reserved"),
    ],
)
def test_errors_name_the_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_task({**SPEC, **changes}, 1)


def test_an_experiment_is_run_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    experiment = read_experiment(path)
    (measured,) = measure([experiment], ResultsStore(tmp_path / "results"), processes=1)
    outcome = conclude(experiment, measured)
    assert {line.setup["strategy"] for line in outcome.lines} == {"G", "V"}
    assert all(line.ours["execution_s"].mean > 0 for line in outcome.lines)

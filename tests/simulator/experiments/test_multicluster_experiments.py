"""Experiments on several clusters: their definitions, their curves, and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pliant.simulator.experiments.definition.definitions import ExperimentError
from pliant.simulator.experiments.definition.reading import read_experiment
from pliant.simulator.experiments.reporting.report_files import write_report
from pliant.simulator.experiments.results import conclude
from pliant.simulator.experiments.running.tasks import run_task
from pliant.simulator.inputs.simulation_errors import SettingsError

TEXT = """
title: Two clusters
source: a test
run:
  workload: koala
  parameters: {jobs: 20, gap: 30}
  multicluster: {clusters: "a:40,b:20", precedence: pwa, poll_s: 10}
seeds: 2
compare: policy
variants:
  FPSMA: {multicluster: {policy: fpsma}}
  EGS: {multicluster: {policy: egs}}
sweep: {threshold: [0, 5]}
vary: {threshold: multicluster.threshold}
metrics: {used_nodes: {}, offers: {}}
curves:
  - {curve: largest_size, lines: policy, where: {threshold: 0}}
  - {curve: used_nodes, lines: policy, where: {threshold: 5}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(TEXT)
    return path


def test_curves_are_measured_and_drawn(path: Path, tmp_path: Path) -> None:
    experiment = read_experiment(path)
    runs: list[list[Mapping[str, float]]] = [
        [run_task(cell.spec, seed) for seed in (1, 2)] for cell in experiment.cells
    ]
    outcome = conclude(experiment, runs)
    sizes, used = outcome.curves
    assert set(sizes.lines) == {"FPSMA", "EGS"}
    quantiles = [value.mean for _, value in sizes.lines["EGS"]]
    assert quantiles == sorted(quantiles)
    assert [place for place, _ in sizes.lines["EGS"]][-1] == 100
    assert max(value.mean for _, value in used.lines["FPSMA"]) <= 60
    pytest.importorskip("matplotlib")
    page = write_report(tmp_path, [outcome], "pliant experiment report")[0].read_text()
    for number in (1, 2):
        assert f"two-curves-{number}.png" in page
        assert (tmp_path / "plots" / f"two-curves-{number}.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("curve: used_nodes", "curve: colour", r"line 18: curves\[1\]\.curve: 'colour'"),
        ("lines: policy, where: {threshold: 5}", "lines: policy", "which threshold"),
        ("lines: policy, where: {threshold: 5}", "lines: age", "age"),
        ("offers: {}", "colour: {}", "not a metric"),
    ],
)
def test_errors_name_the_key(path: Path, old: str, new: str, message: str) -> None:
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(ExperimentError, match=message):
        read_experiment(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"speed": 1}, r"multicluster\.speed: not known"),
        ({"policy": "best"}, r"multicluster\.policy: expected one of fpsma, egs"),
        ({"poll_s": "often"}, r"multicluster\.poll_s: expected a number"),
    ],
)
def test_errors_of_runs_name_the_key(given: dict[str, object], message: str) -> None:
    spec = {"workload": "koala", "multicluster": {"clusters": "a:40", **given}}
    with pytest.raises(ExperimentError, match=message):
        run_task(spec, 1)


def test_clusters_must_be_stated() -> None:
    with pytest.raises(SettingsError, match=r"NAME:PROCESSORS"):
        run_task({"workload": "koala", "multicluster": {}}, 1)

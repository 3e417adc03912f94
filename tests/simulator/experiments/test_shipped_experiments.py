"""Every experiment that is shipped can be read and runs at a small size."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.simulator.experiments.definition.definitions import (
    Cell,
)
from pliant.simulator.experiments.definition.reading import (
    find_experiment,
    known_experiments,
)
from pliant.simulator.experiments.running.tasks import run_task, workload_of
from pliant.simulator.time_shared.task import read_shared_task
from pliant.strategies.registry import known_strategies, load_strategy


@pytest.mark.parametrize("name", ["kumar-4.2", "kumar-4.3", "kumar-4.5", "kumar-4.6"])
def test_the_published_experiments_are_there(name: str) -> None:
    assert name in known_experiments()


@pytest.mark.parametrize("name", sorted(known_experiments()))
def test_every_experiment_runs_at_a_small_size(name: str) -> None:
    """The first and the last cell of each variant run, with a model instead of a log."""
    experiment = find_experiment(name)
    by_variant: dict[object, list[Cell]] = {}
    for cell in experiment.cells:
        by_variant.setdefault(cell.setup.get(experiment.compare), []).append(cell)
    for cells in by_variant.values():
        for cell in {id(cell): cell for cell in (cells[0], cells[-1])}.values():
            measured = run_task(small_run(cell), seed=1)
            for metric in experiment.metrics:
                is_of_dynp = metric.source.startswith("policy_")
                of_others = is_of_dynp and not str(cell.spec.get("strategy")).startswith("dynp")
                assert of_others or metric.source in measured


def small_run(cell: Cell) -> dict[str, Any]:
    """Return the run of a cell with few jobs, for machines without workload logs."""
    if "job_list" in cell.spec:
        return dict(cell.spec)
    spec = {**cell.spec, "jobs": 12}
    if "time_shared" in spec:  # jobs of hours, and a pass of the strategy after each report
        spec["time_shared"] = {**spec["time_shared"], "load_period_s": 30.0}
    if str(spec["workload"]).endswith(".gz"):
        spec |= {"workload": "lublin", "parameters": {}}
    return spec


@pytest.mark.parametrize("name", sorted(known_experiments()))
def test_every_cell_has_a_known_strategy_and_a_workload(name: str) -> None:
    known = known_strategies()
    checked: set[str] = set()
    for cell in find_experiment(name).cells:
        spec = small_run(cell)
        if "time_shared" in spec:
            workload, settings = read_shared_task(spec)
            assert len(workload.make(1, settings.nodes)) == 12
            load_strategy(spec["strategy"], settings.options)
            continue
        spec["settings"] = {}
        # Runs on several clusters name a policy and a precedence.
        assert "multicluster" in spec or spec["strategy"] in known
        if repr(spec) not in checked:
            checked.add(repr(spec))
            assert workload_of(spec, seed=1).jobs

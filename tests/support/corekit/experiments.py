"""A small experiment for tests, and tasks whose results are made up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pliant.simulator.experiments.definition.definitions import (
    Cell,
    Experiment,
)
from pliant.simulator.experiments.running.pool import Done, Task

SMALL = """
title: Small
source: nobody, section 0
run: {workload: kumar, parameters: {jobs: 40, minpe: 16-64}, strategy: equipartition}
seeds: 2
compare: class
variants: {adaptive: {}, traditional: {parameters: {job_class: traditional}}}
references: {fast: {parameters: {base_time: 1}}}
sweep: {mean_interarrival_s: [129]}
vary: {mean_interarrival_s: parameters.gap}
metrics: {mean_response_s: {}, utilization: {within: 5 %}}
claims: [{metric: utilization, of: adaptive, above: fast}]
theory: {adaptive: {mean_response_s: processor-sharing}}
rows:
  - {setup: {mean_interarrival_s: 129}, seeds: 3, run: {warm_up: 3}}
printed:
  - source: nowhere
    where: {class: adaptive}
    down: mean_interarrival_s
    across: metric
    columns: [utilization, mean_response_s]
    rows:
      129: [0.5, 1]
"""


def small(tmp_path: Path, text: str = SMALL) -> Path:
    """Write a definition into a file, and return its path."""
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def cell_of(experiment: Experiment, **setup: object) -> Cell:
    """Return the first cell with these values of the setup."""
    cell = next((cell for cell in experiment.cells if cell.fits(setup)), None)
    assert cell is not None
    return cell


def pretend(tasks: Iterable[Task], _: int, done: Done) -> None:
    """Instead of simulations: numbers that depend on the class and on the seed."""
    for task in tasks:
        fast = task.spec["parameters"].get("base_time") == 1
        traditional = task.spec["parameters"].get("job_class") == "traditional"
        used = 0.1 if fast else 0.4 if traditional else 0.49 + task.seed / 100
        done(task, {"mean_response_s": 125.0 + 2 * task.seed, "utilization": used})

"""Results of experiments with real jobs, as tables of the report.

The action ``validate`` of ``pliant.examples.experiments.adaptive_vs_rigid`` writes them to a file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pliant.simulator.experiments.definition.definitions import (
    Experiment,
    ExperimentError,
    name_of,
)
from pliant.simulator.experiments.reporting.document import (
    Block,
    Bullets,
    Grid,
    Paragraph,
    number,
)

#: The name of the file.
REAL_RUNS = "real_runs.json"

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RealRun:
    """One run of an experiment with real jobs, which run on a changed scale of time.

    Metrics have the simulator's names. Their times are converted to seconds of the simulated
    workload: wall-clock seconds divided by ``scale``.
    """

    experiment: str
    setup: Mapping[str, Any]
    seed: int
    jobs: int
    #: Wall-clock seconds for each second of the model.
    scale: float
    #: The load average of the machine at the end of the run.
    load_average: float
    #: The metrics of the run (`real`), of a simulation of the same jobs without costs
    #: (`simulated`), and of a simulation with the costs that were measured (`with_costs`).
    real: Values
    simulated: Values
    with_costs: Values
    #: Mean costs in wall-clock seconds.
    costs: Values
    #: The mean distance of the completion times from those of the simulation with the measured
    #: costs, relative to the turnaround of each job.
    distance: float


def write_real_runs(path: Path, runs: Sequence[RealRun]) -> None:
    """Write real runs to a file.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n", encoding="utf-8")


def read_real_runs(path: Path) -> list[RealRun]:
    """Read the real runs from a file.

    Raises:
        ExperimentError: the file cannot be read, or has no real runs.
    """
    try:
        return [RealRun(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except OSError as error:
        raise ExperimentError(f"--real {path}: cannot be read: {error.strerror}") from None
    except (TypeError, ValueError):
        raise ExperimentError(
            f"--real {path}: this is not a file {REAL_RUNS} of a validation"
        ) from None


def real_run_blocks(experiment: Experiment, runs: Sequence[RealRun]) -> Iterator[Block]:
    """Yield the part of a report about the real runs of an experiment; nothing if it has none.

    Args:
        experiment: the experiment.
        runs: real runs, also of other experiments, which are ignored.
    """
    # A changed definition may no longer have the row of an old run.
    own = [run for run in runs if run.experiment == experiment.name and experiment.find(run.setup)]
    if not own:
        return
    yield Paragraph(
        "Real jobs, next to simulations of the same jobs: without costs, and with the costs that "
        "were measured in the real run. Times are in seconds of the model."
    )
    heads = ("metric", "printed", "real", "simulated", "with measured costs", "difference, %")
    yield Grid([*own[0].setup, *heads], list(_rows(experiment, own)))
    yield Bullets([_circumstances(run) for run in own])


def _rows(experiment: Experiment, runs: Sequence[RealRun]) -> Iterator[list[str]]:
    for run in runs:
        cell = experiment.find(run.setup)
        for metric in experiment.metrics:
            if cell is None or metric.source not in run.real:
                continue
            real, with_costs = run.real[metric.source], run.with_costs.get(metric.source)
            values = (
                cell.printed.get(metric.name),
                real,
                run.simulated.get(metric.source),
                with_costs,
            )
            difference = f"{100 * (with_costs - real) / real:.1f}" if with_costs and real else ""
            setup = [str(value) for value in run.setup.values()]
            yield [*setup, metric.name, *map(number, values), difference]


def _circumstances(run: RealRun) -> str:
    return (
        f"{name_of(run.setup)}: {run.jobs} jobs, seed {run.seed}, {run.scale:g} s for each second "
        f"of the model, load average {run.load_average:.0f}. Starting the processes of a job took "
        f"{run.costs['start_s']:.1f} s, ending them {run.costs['end_s']:.1f} s, a resize "
        f"{run.costs['adaptation_s']:.2f} s; {run.real['adaptations']:.0f} resizes (simulated "
        f"with costs: {run.with_costs['adaptations']:.0f}). Mean distance of completion times: "
        f"{run.distance:.3f}."
    )

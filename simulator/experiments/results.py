"""From runs to tables: what was measured beside what was printed and what theory says."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pliant.simulator.confidence import Interval, interval
from pliant.simulator.experiments.definitions import (
    Claim,
    Experiment,
    Metric,
    Row,
    Tolerance,
)
from pliant.simulator.experiments.pool import Progress, Task, run_all
from pliant.simulator.experiments.theory import theory_value

PRINTED = "as printed"
THEORY = "as theory"
DIFFERS = "differs"
REPORTED = "reported"
UNDECIDED = "too few runs"
#: Half the width of an interval, in parts of the expected value: a wider one would hold anything.
WIDEST = 0.1

#: What was measured in one cell of a table, by metric.
Cell = Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a result: a row of the table for one variant."""

    setup: dict[str, Any]
    printed: dict[str, float]
    ours: dict[str, Interval]
    theory: dict[str, float]
    #: One word for each metric, and for all of them with the claims.
    verdicts: dict[str, str]
    claims: dict[str, bool]
    verdict: str


def run_experiment(
    experiment: Experiment,
    *,
    processes: int,
    progress: Progress,
    seeds: int | None = None,
    jobs: int | None = None,
) -> list[Line]:
    """Run all of it.

    Args:
        experiment: what to run.
        processes: at once.
        progress: told after each run.
        seeds: 1, 2, ... up to this; None: as the definition says.
        jobs: of each workload; None: as the definition says.

    Raises:
        ExperimentError: a run failed.
    """
    cells = list(_cells(experiment))
    sources = [metric.source for metric in experiment.metrics]
    tasks = [
        Task(_with_jobs(experiment.spec(row, variant), jobs), seed, sources)
        for _, row, variant in cells
        for seed in range(1, (seeds or row.seeds) + 1)
    ]
    measured = iter(run_all(tasks, processes, progress))
    found = {
        (place, variant): _cell(experiment, list(islice(measured, seeds or row.seeds)))
        for place, row, variant in cells
    }
    return [
        _line(experiment, row, variant, {name: found[place, name] for name in _names(experiment)})
        for place, row, variant in cells
        if variant in experiment.variants
    ]


def count_runs(experiment: Experiment, seeds: int | None) -> int:
    """How many simulations it takes."""
    return sum(seeds or row.seeds for _, row, _ in _cells(experiment))


def _names(experiment: Experiment) -> list[str]:
    return [*experiment.variants, *experiment.references]


def _cells(experiment: Experiment) -> Iterator[tuple[int, Row, str]]:
    for place, row in enumerate(experiment.rows):
        for variant in _names(experiment):
            yield place, row, variant


def _with_jobs(spec: dict[str, Any], jobs: int | None) -> dict[str, Any]:
    return spec if jobs is None else {**spec, "jobs": jobs}


def _cell(experiment: Experiment, runs: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    return {
        metric.name: interval([run[metric.source] for run in runs]) for metric in experiment.metrics
    }


def _line(experiment: Experiment, row: Row, variant: str, cells: Mapping[str, Cell]) -> Line:
    ours = dict(cells[variant])
    printed = {key: float(value) for key, value in row.printed.get(variant, {}).items()}
    spec = experiment.spec(row, variant)
    formulas = row.theory.get(variant, {}).items()
    values = {key: theory_value(value, spec) for key, value in formulas}
    theory = {key: value for key, value in values.items() if value is not None}
    verdicts = {
        metric.name: judge(metric, ours[metric.name], printed.get(metric.name), theory)
        for metric in experiment.metrics
    }
    claims = {str(claim): holds(claim, cells) for claim in experiment.claims if claim.of == variant}
    setup = {**row.setup, experiment.compare: variant}
    return Line(setup, printed, ours, theory, verdicts, claims, summary(verdicts, claims))


def judge(
    metric: Metric, ours: Interval, printed: float | None, theory: Mapping[str, float]
) -> str:
    """Compare with the printed value if it is to be met, otherwise or else with theory.

    That theory lies within the interval says something only if little else does.
    """
    expected, within = theory.get(metric.name), metric.within
    to_be_met = within is not None and printed is not None
    if to_be_met and _near(within, ours, printed):
        return PRINTED
    if expected is None:
        return DIFFERS if to_be_met else REPORTED
    if _near(within, ours, expected):
        return THEORY
    if expected not in ours:
        return DIFFERS
    return THEORY if ours.high - ours.low <= 2 * WIDEST * abs(expected) else UNDECIDED


def _near(within: Tolerance | None, ours: Interval, expected: float | None) -> bool:
    return within is not None and expected is not None and within.allows(ours.mean, expected)


def holds(claim: Claim, cells: Mapping[str, Cell]) -> bool:
    """Whether a claim is true of the means of one row."""
    mine, other = (cells[name][claim.metric].mean for name in (claim.of, claim.than))
    return mine > other if claim.above else mine < other


def summary(verdicts: Mapping[str, str], claims: Mapping[str, bool]) -> str:
    """One verdict for the line: what differs, by name, or the weakest of the agreements."""
    wrong = [name for name, verdict in verdicts.items() if verdict == DIFFERS]
    wrong += [f"not {claim}" for claim, true in claims.items() if not true]
    if wrong:
        return f"{DIFFERS}: {', '.join(wrong)}"
    found = set(verdicts.values()) - {REPORTED}
    if UNDECIDED in found:
        return UNDECIDED
    if not found:
        return REPORTED
    return THEORY if THEORY in found else PRINTED

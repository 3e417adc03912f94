"""From runs to tables: measured values, printed values, and values of queueing theory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pliant.simulator.confidence import Interval, interval
from pliant.simulator.experiments.definitions import (
    Claim,
    Experiment,
    Metric,
    TableRow,
    Tolerance,
)
from pliant.simulator.experiments.pool import Progress, Task, run_all
from pliant.simulator.experiments.queueing_theory import theory_value
from pliant.simulator.inputs import models
from pliant.simulator.run.metrics import TOTALS

PRINTED = "as printed"
THEORY = "as theory"
DIFFERS = "differs"
REPORTED = "reported"
UNDECIDED = "too few runs"
#: The largest half width of an interval that decides, relative to the expected value. A wider
#: interval would contain almost any value.
WIDEST = 0.1

#: The metrics of the runs of one cell of a table, one mapping per seed.
Cell = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a claim, from pairs of runs with the same seed, arrivals and work."""

    #: Whether the claim holds for the mean of the differences.
    holds: bool
    #: The difference, positive on the claimed side.
    by: Interval
    #: The number of pairs in which the claim holds, and the number of pairs.
    pairs: int
    of: int
    #: Whether the interval of the differences excludes 0. If not, the result may be due to chance.
    told_apart: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a result: a row of the table for one variant."""

    setup: dict[str, Any]
    printed: dict[str, float]
    ours: dict[str, Interval]
    theory: dict[str, float]
    #: The verdict on each metric; ``verdict`` sums up metrics and claims.
    verdicts: dict[str, str]
    claims: dict[str, Compared]
    verdict: str


def run_experiment(
    experiment: Experiment,
    *,
    processes: int,
    progress: Progress,
    seeds: int | None = None,
    jobs: int | None = None,
) -> list[Line]:
    """Run an experiment.

    Args:
        experiment: the experiment.
        processes: how many runs in parallel.
        progress: called after each run.
        seeds: the number of seeds 1, 2, ...; None for the number in the definition.
        jobs: the jobs of each workload; None for the number in the definition. Expected totals,
            such as profit, are scaled to this number.

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
        (place, variant): list(islice(measured, seeds or row.seeds))
        for place, row, variant in cells
    }
    return [
        _line(
            experiment,
            row,
            variant,
            {name: found[place, name] for name in _names(experiment)},
            share_of_jobs(experiment.spec(row, variant), jobs),
        )
        for place, row, variant in cells
        if variant in experiment.variants
    ]


def share_of_jobs(spec: Mapping[str, Any], jobs: int | None) -> float:
    """Return the number of jobs relative to the definition; 1 if it states none."""
    if jobs is None:
        return 1.0
    named = spec.get("jobs") or spec.get("parameters", {}).get("jobs")
    if named is None and models.is_model(spec.get("workload", "")):
        named = models.parameters(spec["workload"]).get("jobs")
    return jobs / named if isinstance(named, int) and named else 1.0


def _scaled(metric: Metric, values: Mapping[str, float], share: float) -> float | None:
    """Return the expected value of a metric. Totals are scaled to the number of jobs."""
    value = values.get(metric.name)
    return value if value is None or metric.source not in TOTALS else value * share


def count_runs(experiment: Experiment, seeds: int | None) -> int:
    """Return the number of simulations of an experiment."""
    return sum(seeds or row.seeds for _, row, _ in _cells(experiment))


def _names(experiment: Experiment) -> list[str]:
    return [*experiment.variants, *experiment.references]


def _cells(experiment: Experiment) -> Iterator[tuple[int, TableRow, str]]:
    for place, row in enumerate(experiment.rows):
        for variant in _names(experiment):
            yield place, row, variant


def _with_jobs(spec: dict[str, Any], jobs: int | None) -> dict[str, Any]:
    return spec if jobs is None else {**spec, "jobs": jobs}


def _means(experiment: Experiment, cell: Cell) -> dict[str, Interval]:
    return {
        metric.name: interval([run[metric.source] for run in cell]) for metric in experiment.metrics
    }


def _line(
    experiment: Experiment, row: TableRow, variant: str, cells: Mapping[str, Cell], share: float
) -> Line:
    ours = _means(experiment, cells[variant])
    named = {key: float(value) for key, value in row.printed.get(variant, {}).items()}
    printed = {
        metric.name: value
        for metric in experiment.metrics
        if (value := _scaled(metric, named, share)) is not None
    }
    spec = experiment.spec(row, variant)
    formulas = row.theory.get(variant, {}).items()
    values = {key: theory_value(value, spec) for key, value in formulas}
    known = {key: value for key, value in values.items() if value is not None}
    theory = {
        metric.name: value
        for metric in experiment.metrics
        if (value := _scaled(metric, known, share)) is not None
    }
    verdicts = {
        metric.name: judge(
            metric.scaled(share if metric.source in TOTALS else 1.0),
            ours[metric.name],
            printed.get(metric.name),
            theory,
        )
        for metric in experiment.metrics
    }
    sources = {metric.name: metric.source for metric in experiment.metrics}
    claims = {
        str(claim): compare(claim, sources[claim.metric], cells)
        for claim in experiment.claims
        if claim.of == variant
    }
    setup = {**row.setup, experiment.compare: variant}
    return Line(
        setup,
        printed,
        ours,
        theory,
        verdicts,
        claims,
        summary(verdicts, {key: found.holds for key, found in claims.items()}),
    )


def judge(
    metric: Metric, ours: Interval, printed: float | None, theory: Mapping[str, float]
) -> str:
    """Compare a metric with the printed value if there is a tolerance, otherwise with theory.

    A value of theory within the interval is evidence only if the interval is narrow.
    """
    expected, within = theory.get(metric.name), metric.within
    by_print = REPORTED
    if within is not None and printed is not None:
        by_print = judge_printed(within, ours, printed)
    if by_print == PRINTED or expected is None:
        return by_print
    if _near(within, ours, expected):
        return THEORY
    if expected not in ours:
        return UNDECIDED if by_print == UNDECIDED else DIFFERS
    return THEORY if _is_narrow(ours, expected) else UNDECIDED


def judge_printed(within: Tolerance, ours: Interval, printed: float) -> str:
    """Return the verdict on a printed value: "as printed", "differs" or "too few runs".

    The verdict is "as printed" if the whole interval is within the tolerance, and "differs" if no
    part of it is. If a part is, the verdict is "as printed" only if the mean is within the
    tolerance, the printed value is within the interval, and the interval is narrow. Otherwise
    other seeds could give another verdict.
    """
    if within.allows(ours.low, printed) and within.allows(ours.high, printed):
        return PRINTED
    margin = within.margin(printed)
    if ours.low > printed + margin or ours.high < printed - margin:
        return DIFFERS
    agrees = within.allows(ours.mean, printed) and printed in ours and _is_narrow(ours, printed)
    return PRINTED if agrees else UNDECIDED


def _is_narrow(ours: Interval, expected: float) -> bool:
    return ours.high - ours.low <= 2 * WIDEST * abs(expected)


def _near(within: Tolerance | None, ours: Interval, expected: float | None) -> bool:
    return within is not None and expected is not None and within.allows(ours.mean, expected)


def compare(claim: Claim, source: str, cells: Mapping[str, Cell]) -> Compared:
    """Compare the two variants of a claim, run by run, in the metric ``source`` of the results."""
    pairs = zip(cells[claim.of], cells[claim.than], strict=True)
    sign = 1 if claim.above else -1
    ahead = [sign * (mine[source] - other[source]) for mine, other in pairs]
    by = interval(ahead)
    return Compared(by.mean > 0, by, sum(each > 0 for each in ahead), len(ahead), 0 not in by)


def summary(verdicts: Mapping[str, str], claims: Mapping[str, bool]) -> str:
    """Return the verdict for the line: the names of what differs, or the weakest agreement."""
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

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
from pliant.simulator.experiments.queueing_theory import theory_value
from pliant.simulator.inputs import models
from pliant.simulator.run.metrics import TOTALS

PRINTED = "as printed"
THEORY = "as theory"
DIFFERS = "differs"
REPORTED = "reported"
UNDECIDED = "too few runs"
#: Half the width of an interval, in parts of the expected value: a wider one would hold anything.
WIDEST = 0.1

#: What was measured in one cell of a table: by seed, then by metric.
Cell = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Compared:
    """What became of a claim, in pairs: one seed gives both sides the same arrivals and work."""

    #: Of the mean of the differences.
    holds: bool
    #: How far the one is on the claimed side of the other.
    by: Interval
    #: Pairs of runs in which it holds, and pairs.
    pairs: int
    of: int
    #: Whether the interval of the differences leaves out 0: otherwise chance may have decided.
    told_apart: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a result: a row of the table for one variant."""

    setup: dict[str, Any]
    printed: dict[str, float]
    ours: dict[str, Interval]
    theory: dict[str, float]
    #: One word for each metric, and for all of them with the claims.
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
    """Run all of it.

    Args:
        experiment: what to run.
        processes: at once.
        progress: told after each run.
        seeds: 1, 2, ... up to this; None: as the definition says.
        jobs: of each workload; None: as the definition says. Expected totals, such as profit, are
            scaled to that many.

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
    """How many jobs are run, in parts of those that the definition names; 1 if it names none."""
    if jobs is None:
        return 1.0
    named = spec.get("jobs") or spec.get("parameters", {}).get("jobs")
    if named is None and models.is_model(spec.get("workload", "")):
        named = models.parameters(spec["workload"]).get("jobs")
    return jobs / named if isinstance(named, int) and named else 1.0


def _scaled(metric: Metric, values: Mapping[str, float], share: float) -> float | None:
    """What is expected of fewer jobs than the definition names: a part of what is a total."""
    value = values.get(metric.name)
    return value if value is None or metric.source not in TOTALS else value * share


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


def _means(experiment: Experiment, cell: Cell) -> dict[str, Interval]:
    return {
        metric.name: interval([run[metric.source] for run in cell]) for metric in experiment.metrics
    }


def _line(
    experiment: Experiment, row: Row, variant: str, cells: Mapping[str, Cell], share: float
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
    """Compare with the printed value if it is to be met, otherwise or else with theory.

    That theory lies within the interval says something only if little else does.
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
    """Compare with a printed value by the interval, not by the mean alone.

    All of the interval within the tolerance: as printed; none of it: differs. If it is partly
    within, it is as printed only if the mean is within the tolerance, the printed value is within
    the interval, and little else is. Otherwise other seeds could say something else.
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
    """Whether a claim is true of one row, in the metric that results call ``source``."""
    pairs = zip(cells[claim.of], cells[claim.than], strict=True)
    sign = 1 if claim.above else -1
    ahead = [sign * (mine[source] - other[source]) for mine, other in pairs]
    by = interval(ahead)
    return Compared(by.mean > 0, by, sum(each > 0 for each in ahead), len(ahead), 0 not in by)


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

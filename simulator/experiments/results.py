"""Turn the runs of an experiment into results: a line for each cell, and comparisons of cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.simulator.confidence import Interval, interval
from pliant.simulator.experiments.curves import MeasuredCurves, measure_curves
from pliant.simulator.experiments.definition.definitions import (
    Cell,
    CellClaim,
    Experiment,
    name_of,
)
from pliant.simulator.experiments.peaks_and_differences import (
    Peaked,
    Read,
    Subtracted,
    interpolate,
    peaks,
    subtract,
)
from pliant.simulator.experiments.queueing_theory import theory_value
from pliant.simulator.experiments.running.measuring import FULL_SIZE, Measured, Scale
from pliant.simulator.experiments.verdicts import (
    DIFFERS,
    DOUBTFUL,
    MIN_RUNS,
    PRINTED,
    REPORTED,
    THEORY,
    UNDECIDED,
    ClaimResult,
    compare_pairs,
    judge,
    summary,
)
from pliant.simulator.multicluster.metric_names import TOTALS as TOTALS_OF_CLUSTERS
from pliant.simulator.run.metrics import TOTALS as TOTALS_OF_ONE_SERVER

TOTALS = TOTALS_OF_ONE_SERVER | TOTALS_OF_CLUSTERS

REPRODUCED = "reproduced"
SAME_SHAPE = "same shape"
NOT_REPRODUCED = "not reproduced"
NOT_COMPARED = "nothing printed to compare with"
CANNOT = "cannot be reproduced"

#: Whether a value agrees with what is expected, by its verdict; None if more runs are needed.
_AGREES = {PRINTED: True, THEORY: True, DIFFERS: False, UNDECIDED: None}

#: The metrics of the runs of each cell, by the place of the cell.
Runs = Mapping[int, Sequence[Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an experiment's table: a cell with its values, verdicts and claims.

    A cell is one combination of parameters.
    """

    setup: dict[str, Any]
    #: The number of runs, each with another seed.
    runs: int
    printed: dict[str, float]
    #: Why a printed value is doubtful, by metric.
    doubtful: dict[str, str]
    ours: dict[str, Interval]
    theory: dict[str, float]
    #: The verdict on each metric; ``verdict`` sums up metrics and claims.
    verdicts: dict[str, str]
    claims: dict[str, ClaimResult]
    verdict: str


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """The result of an experiment: lines with its values, and how they compare with the paper."""

    experiment: Experiment
    lines: list[Line]
    peaks: list[Peaked] = field(default_factory=list)
    differences: list[Subtracted] = field(default_factory=list)
    interpolations: list[Read] = field(default_factory=list)
    curves: list[MeasuredCurves] = field(default_factory=list)
    #: The number of runs that the result is based on, and that of the whole experiment.
    runs: int = 0
    all_runs: int = 0
    #: The names of the cells that have not been run.
    not_run: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Return whether all runs have been done."""
        return self.runs == self.all_runs

    @property
    def claims(self) -> list[tuple[str, ClaimResult]]:
        """Return the results of the claims of all lines, each with the name of its line."""
        return [
            (f"{name_of(line.setup)}: {claim}", found)
            for line in self.lines
            for claim, found in line.claims.items()
        ]

    def counts(self) -> dict[str, int]:
        """Return the number of values with each verdict.

        Values with nothing to compare them with do not count, nor those that the definition marks
        as doubtful.
        """
        found: dict[str, int] = {}
        for line in self.lines:
            for verdict in line.verdicts.values():
                if verdict not in (REPORTED, DOUBTFUL):
                    found[verdict] = found.get(verdict, 0) + 1
        return found

    @property
    def verdict(self) -> str:
        """Return the verdict on the experiment as a whole, in a word or two.

        The verdict is "reproduced" if at least nine of ten judged values agree with the paper or
        with theory and all claims hold, and "same shape" if at least nine of ten claims hold. If
        runs are missing and their results could change the verdict, it is "too few runs".
        """
        if self.experiment.not_reproducible:
            return CANNOT
        if self.not_run:
            return UNDECIDED
        values = [
            _AGREES[verdict]
            for line in self.lines
            for verdict in line.verdicts.values()
            if verdict in _AGREES
        ]
        claims = [
            found.holds if self.is_complete or found.is_decided else None
            for _, found in self.claims
        ]
        claims += [
            peak.holds if self.is_complete or peak.runs >= MIN_RUNS else None for peak in self.peaks
        ]
        worst = _verdict([value is True for value in values], [claim is True for claim in claims])
        best = _verdict(
            [value is not False for value in values], [claim is not False for claim in claims]
        )
        return worst if self.is_complete or best == worst else UNDECIDED


def _verdict(agree: Sequence[bool], hold: Sequence[bool]) -> str:
    """Return the verdict on an experiment.

    Args:
        agree: for each judged value, whether it agrees with the paper or with theory.
        hold: for each claim, whether it holds.
    """
    if not agree and not hold:
        return NOT_COMPARED
    if sum(agree) >= 0.9 * len(agree) and all(hold):
        return REPRODUCED if agree else SAME_SHAPE
    if hold and sum(hold) >= 0.9 * len(hold):
        return SAME_SHAPE
    return NOT_REPRODUCED


def conclude(
    experiment: Experiment, measured: Measured, scale: Scale = FULL_SIZE
) -> ExperimentOutcome:
    """Return the result of comparing runs with the values and claims of a paper.

    Args:
        experiment: the experiment.
        measured: the metrics of the runs of each of its cells. Cells without runs have no line.
        scale: the size of the runs. Expected totals, such as profit, are scaled to the number of
            jobs.
    """
    runs = {id(cell): each for cell, each in zip(experiment.cells, measured, strict=True)}
    lines = [
        _line(experiment, cell, runs, scale)
        for cell in experiment.cells
        if runs[id(cell)] and not cell.is_reference
    ]
    return ExperimentOutcome(
        experiment,
        lines,
        peaks(experiment, runs),
        subtract(experiment, runs),
        interpolate(experiment, runs),
        measure_curves(experiment, runs),
        runs=sum(map(len, measured)),
        all_runs=sum(map(scale.seeds_of, experiment.cells)),
        not_run=[cell.label for cell in experiment.cells if not runs[id(cell)]],
    )


def _line(experiment: Experiment, cell: Cell, runs: Runs, scale: Scale) -> Line:
    own = runs[id(cell)]
    share = scale.share_of_jobs(cell.spec)
    ours = {
        metric.name: interval([run.get(metric.source, 0.0) for run in own])
        for metric in experiment.metrics
    }
    values = {key: theory_value(value, cell.spec) for key, value in cell.theory.items()}
    known = {key: value for key, value in values.items() if value is not None}
    printed = _scaled(experiment, cell.printed, share)
    theory = _scaled(experiment, known, share)
    verdicts = {
        metric.name: DOUBTFUL
        if metric.name in cell.doubtful
        else judge(
            metric.scaled(share if metric.source in TOTALS else 1.0),
            ours[metric.name],
            printed.get(metric.name),
            theory,
            len(own),
        )
        for metric in experiment.metrics
    }
    claims = {
        str(claim): found
        for claim in experiment.claims
        if (found := _compared(experiment, claim, cell, runs)) is not None
    }
    held = {name: found.holds if found.is_judged else None for name, found in claims.items()}
    return Line(
        dict(cell.setup),
        len(own),
        printed,
        dict(cell.doubtful),
        ours,
        theory,
        verdicts,
        claims,
        summary(verdicts, held),
    )


def _scaled(experiment: Experiment, values: Mapping[str, float], share: float) -> dict[str, float]:
    """Return expected values for runs that simulate only a share of the jobs.

    Totals, such as profit, are multiplied by ``share``; other values do not change.
    """
    return {
        metric.name: values[metric.name] * (share if metric.source in TOTALS else 1.0)
        for metric in experiment.metrics
        if metric.name in values
    }


def _compared(
    experiment: Experiment, claim: CellClaim, cell: Cell, runs: Runs
) -> ClaimResult | None:
    """Return the result of a claim for a cell, by comparing its runs with those of another cell.

    A cell is one combination of the experiment's parameters.

    Returns:
        None if the claim is not about the cell, or if the other cell has not been run.
    """
    if not (cell.fits(claim.of) and cell.fits(claim.where)):
        return None
    other = experiment.find({**cell.setup, **claim.than})
    if other is None or not runs[id(other)]:
        return None
    source = experiment.metric(claim.metric).source
    mine, theirs = ([run.get(source, 0.0) for run in runs[id(each)]] for each in (cell, other))
    return compare_pairs(mine, theirs, above=claim.above, by=claim.by, at_most=claim.at_most)

"""Compare values along an axis: maxima, differences, and values at points of curves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pliant.simulator.confidence import Interval, interval
from pliant.simulator.experiments.definition.definitions import (
    Cell,
    Difference,
    Experiment,
    Interpolation,
    Peak,
    name_of,
)
from pliant.simulator.experiments.verdicts import MIN_RUNS

#: The metrics of the runs of each cell, by the identity of the cell.
Runs = Mapping[int, Sequence[Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Peaked:
    """Where a metric is highest along a parameter in our runs, to be compared with the paper."""

    peak: Peak
    #: The values of the other axes, as a text.
    label: str
    highest_at: Any
    #: The number of runs of each place; the smallest one if they differ.
    runs: int

    @property
    def holds(self) -> bool:
        """Return whether our maximum is at one of the positions that the paper claims."""
        return self.highest_at in self.peak.at

    @property
    def is_judged(self) -> bool:
        """Return whether each position has enough runs (``MIN_RUNS``) to judge the claim."""
        return self.runs >= MIN_RUNS


@dataclass(frozen=True, slots=True)
class Subtracted:
    """A difference of two values that the paper states, and the same difference in our runs."""

    difference: Difference
    #: The value of the axis.
    at: Any
    printed: float
    #: The difference of the printed values of both sides; None if one of them is not printed.
    of_printed: float | None
    ours: Interval
    #: The number of pairs of runs.
    runs: int


@dataclass(frozen=True, slots=True)
class Read:
    """A value that the paper states for a point of a curve, and the value of our curve there."""

    interpolation: Interpolation
    #: The value of the axis that names the curves.
    at: Any
    printed: float
    #: None if fewer than two runs reach the place.
    ours: Interval | None
    #: The number of runs of each point of the curve; the smallest one if they differ.
    runs: int


def peaks(experiment: Experiment, runs: Runs) -> list[Peaked]:
    """Return where a metric is highest in our runs, for each maximum that the paper claims.

    A maximum is left out if one of its positions has not been run.
    """
    found = []
    for peak in experiment.peaks:
        source = experiment.metric(peak.metric).source
        for label, cells in _lines_along(experiment, peak.axis, peak.where):
            number = min(len(runs[id(cell)]) for cell in cells)
            if number > 0:
                best = max(cells, key=lambda cell: _mean(runs[id(cell)], source))
                found.append(Peaked(peak, label, best.setup[peak.axis], number))
    return found


def subtract(experiment: Experiment, runs: Runs) -> list[Subtracted]:
    """Return each difference that the paper states, together with the same difference in our runs.

    Our difference is taken between runs with the same seed. Differences without such runs are left
    out.
    """
    found = []
    for difference in experiment.differences:
        source = experiment.metric(difference.metric).source
        for at, printed in difference.printed.items():
            sides = [
                next(experiment.matching({**side, difference.axis: at}), None)
                for side in (difference.of, difference.than)
            ]
            of, than = sides
            if of is None or than is None or printed is None:
                continue
            pairs = list(zip(runs[id(of)], runs[id(than)], strict=False))
            if not pairs:
                continue
            ours = interval([_differ(difference, a[source], b[source]) for a, b in pairs])
            printed_of, printed_than = (cell.printed.get(difference.metric) for cell in (of, than))
            both = printed_of is not None and printed_than is not None
            arithmetic = _differ(difference, printed_of, printed_than) if both else None
            found.append(Subtracted(difference, at, printed, arithmetic, ours, len(pairs)))
    return found


def _differ(difference: Difference, of: float | None, than: float | None) -> float:
    """Return the difference ``of - than`` in the form in which the paper states it.

    If the paper states a relative difference, the result is in percent of ``than``. Otherwise it is
    100 times the difference, which turns fractions into percentage points. If the paper states a
    decline, a decline is positive.
    """
    assert of is not None
    assert than is not None
    scale = than if difference.relative else 1.0
    return difference.sign * 100 * (of - than) / scale if scale else 0.0


def interpolate(experiment: Experiment, runs: Runs) -> list[Read]:
    """Return each value that the paper states for a point of a curve, with the value of our curve.

    Our value is the mean over seeds, each interpolated on the curve of its runs. It is None if
    fewer than two seeds have a value there.
    """
    found = []
    for each in experiment.interpolations:
        metric, other = (experiment.metric(name).source for name in (each.metric, each.other))
        for at, printed in each.printed.items():
            cells = list(experiment.matching({**each.where, each.axis: at}))
            number = min((len(runs[id(cell)]) for cell in cells), default=0)
            values = [
                value
                for seed in range(number)
                if (value := _value_at(
                    [(runs[id(c)][seed][other], runs[id(c)][seed][metric]) for c in cells],
                    each.value,
                )) is not None
            ]  # fmt: skip
            ours = interval(values) if len(values) >= MIN_RUNS else None
            found.append(Read(each, at, printed, ours, number))
    return found


def _value_at(points: list[tuple[float, float]], place: float) -> float | None:
    """Return a curve's value at a position, linear between points; None outside of the curve."""
    for (left, low), (right, high) in pairwise(sorted(points)):
        if left <= place <= right:
            return low if left == right else low + (high - low) * (place - left) / (right - left)
    return None


def _lines_along(
    experiment: Experiment, axis: str, where: Mapping[str, Any]
) -> Iterator[tuple[str, list[Cell]]]:
    """Group the cells into lines along an axis; yield each as (values of the other axes, cells).

    Args:
        experiment: the experiment.
        axis: the axis along which the cells of a line differ.
        where: the values, by axis, that the cells must have.
    """
    lines: dict[str, list[Cell]] = {}
    for cell in experiment.matching(where):
        rest = {key: value for key, value in cell.setup.items() if key != axis}
        lines.setdefault(name_of(rest), []).append(cell)
    yield from lines.items()


def _mean(runs: Sequence[Mapping[str, float]], source: str) -> float:
    return sum(run.get(source, 0.0) for run in runs) / len(runs)

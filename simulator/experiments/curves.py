"""Curves of experiments: distributions over jobs, and values over time, with their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.simulator.confidence import Interval, interval
from pliant.simulator.experiments.definition.definitions import CurvePlot, Experiment
from pliant.simulator.multicluster.metric_names import curve_points


@dataclass(frozen=True, slots=True)
class MeasuredCurves:
    """The measured curves of one plot. Each point of a line has a position and a value."""

    plot: CurvePlot
    lines: Mapping[str, Sequence[tuple[float, Interval]]]


def measure_curves(
    experiment: Experiment, runs: Mapping[int, Sequence[Mapping[str, float]]]
) -> list[MeasuredCurves]:
    """Return the curves of all plots of an experiment, without cells that have not been run.

    A cell is one combination of the experiment's parameters.

    Args:
        experiment: the experiment.
        runs: the metrics of the runs of each cell, by ``id()`` of the cell.
    """
    return [
        MeasuredCurves(
            plot,
            {
                str(cell.setup.get(plot.lines, "")): [
                    (place, interval([run.get(key, 0.0) for run in runs[id(cell)]]))
                    for place, key in curve_points(plot.curve)
                ]
                for cell in experiment.matching(plot.where)
                if runs[id(cell)]
            },
        )
        for plot in experiment.curves
    ]

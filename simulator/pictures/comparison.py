"""A picture that compares strategies in several metrics, with confidence intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pliant.simulator.confidence import interval
from pliant.simulator.pictures.figure import COLOURS, GRID, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The metrics, with the titles of their axes.
_METRICS = {
    "utilization": "utilization",
    "mean_turnaround_s": "mean turnaround time (s)",
    "mean_wait_s": "mean wait (s)",
    "schedule_span_s": "schedule span (s)",
}


def comparison(
    labels: Sequence[str], runs: Sequence[Sequence[Mapping[str, float]]], title: str
) -> "Figure":
    """Return a picture of the mean of each metric for each strategy.

    Args:
        labels: the names of the strategies.
        runs: the metrics of the runs of each strategy; with several runs, the picture has their
            95 % confidence intervals.
        title: the title of the picture.
    """
    figure = new_figure(11.0, 1.8 + 0.35 * len(labels))
    figure.suptitle(title, fontsize=11)
    places = range(len(labels))
    panels = figure.subplots(1, len(_METRICS), sharey=True)
    for axes, (metric, name) in zip(panels, _METRICS.items(), strict=True):
        values = [interval([run[metric] for run in each]) for each in runs]
        errors = [
            [value.mean - value.low for value in values],
            [value.high - value.mean for value in values],
        ]
        axes.barh(
            places,
            [value.mean for value in values],
            xerr=errors if len(runs[0]) > 1 else None,
            color=[COLOURS[place % 6] for place in places],
            capsize=3,
            alpha=0.8,
        )
        axes.set_xlabel(name)
        axes.tick_params(axis="x", labelrotation=30, labelsize=8)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
    panels[0].set_yticks(places, labels)
    panels[0].set_ylabel("strategy")
    panels[0].invert_yaxis()
    return figure

"""Plots of distributions over the jobs and of values over time."""

from collections.abc import Iterator
from pathlib import Path

from pliant.simulator.experiments.curves import MeasuredCurves
from pliant.simulator.experiments.results import ExperimentOutcome
from pliant.simulator.multicluster.metric_names import DISTRIBUTIONS
from pliant.simulator.pictures.figure import (
    COLOURS,
    can_draw,
    encoded,
    legend_outside,
    new_figure,
    titled_axes,
)


def write_curve_plots(folder: Path, outcome: ExperimentOutcome) -> Iterator[tuple[Path, str]]:
    """Write the plots of curves of an experiment as SVG and PNG.

    Yields:
        The path of each PNG file, with a description. Nothing is yielded if matplotlib is not
        installed. A plot is left out if none of its cells has been run.

    Raises:
        OSError: a file cannot be written.
    """
    if not can_draw():
        return
    for place, curves in enumerate(outcome.curves, 1):
        if not curves.lines:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{outcome.experiment.name}-curves-{place}.png"
        title = _title(outcome, curves)
        _draw(outcome, curves, title, path)
        yield path, title


def _title(outcome: ExperimentOutcome, curves: MeasuredCurves) -> str:
    where = ", ".join(f"{axis} {value}" for axis, value in curves.plot.where.items())
    kind = "by job" if curves.plot.curve in DISTRIBUTIONS else "over time"
    title = f"{outcome.experiment.name}: {outcome.experiment.label(curves.plot.curve)} {kind}"
    return f"{title} ({where})" if where else title


def _draw(outcome: ExperimentOutcome, curves: MeasuredCurves, title: str, path: Path) -> None:
    name = curves.plot.curve
    label = outcome.experiment.label(name)
    is_distribution = name in DISTRIBUTIONS
    x = label if is_distribution else "time (% of the time from the first to the last submission)"
    y = "jobs with at most this value (%)" if is_distribution else label
    figure = new_figure(8.5)
    axes = titled_axes(figure, title, x, y)
    for number, (line, points) in enumerate(curves.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place for place, _ in points]
        low, mean, high = (
            [getattr(value, side) for _, value in points] for side in ("low", "mean", "high")
        )
        if is_distribution:
            axes.plot(mean, places, color=colour, label=line, linewidth=1.2)
            axes.fill_betweenx(places, low, high, color=colour, alpha=0.2, linewidth=0)
        else:
            axes.plot(places, mean, color=colour, label=line, linewidth=1.2)
            axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    legend_outside(axes)
    path.write_bytes(encoded(figure, "png"))
    path.with_suffix(".svg").write_bytes(encoded(figure, "svg"))

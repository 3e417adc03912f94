"""Plots of experiments: our values with their intervals, and the paper's values on top of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pliant.simulator.experiments.definition.definitions import Plot, is_list
from pliant.simulator.experiments.results import ExperimentOutcome, Line
from pliant.simulator.pictures.figure import (
    COLOURS,
    MARKERS,
    can_draw,
    encoded,
    legend_outside,
    new_figure,
    titled_axes,
)

#: The number of values of a swept axis that one plot shows as lines; more cannot be told apart.
_MOST_LINES = 8


def write_plots(folder: Path, outcome: ExperimentOutcome) -> Iterator[tuple[Path, str]]:
    """Write the plots of an experiment as SVG and PNG.

    Yields:
        The path of each PNG file, with a description. Nothing if matplotlib is not installed, or
        if no cell of a plot has been run.

    Raises:
        OSError: a file cannot be written.
    """
    if not can_draw():
        return
    for place, plot in enumerate(outcome.experiment.plots, 1):
        if not _curves(outcome, plot):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{outcome.experiment.name}-{place}.png"
        _draw(outcome, plot, path)
        yield path, _title(outcome, plot)


def _title(outcome: ExperimentOutcome, plot: Plot) -> str:
    label = outcome.experiment.label
    fixed = {axis: value for axis, value in plot.where.items() if not is_list(value)}
    where = ", ".join(f"{label(axis)} {value}" for axis, value in fixed.items())
    title = f"{outcome.experiment.name}: {label(plot.metric)} by {label(plot.x)}"
    return f"{title} ({where})" if where else title


def _draw(outcome: ExperimentOutcome, plot: Plot, path: Path) -> None:
    label = outcome.experiment.label
    figure = new_figure(8.5)
    axes = titled_axes(figure, _title(outcome, plot), label(plot.x), label(plot.metric))
    for place, (name, lines) in enumerate(_curves(outcome, plot).items()):
        style = {
            "color": COLOURS[place % len(COLOURS)],
            # Shifted, so that a colour that is used again has another marker.
            "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)],
        }
        _curve(axes, plot, lines, f"{name}, here" if name else "here", style)
        _printed(axes, plot, lines, f"{name}, printed" if name else "printed", style)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    legend_outside(axes)
    path.write_bytes(encoded(figure, "png"))
    path.with_suffix(".svg").write_bytes(encoded(figure, "svg"))


def _curves(outcome: ExperimentOutcome, plot: Plot) -> dict[str, list[Line]]:
    """Return the points of each curve of a plot, by the curve's name, as lines of the result.

    A line of the result is a row of the experiment's table. If there are too many curves for one
    plot, only ``_MOST_LINES`` of them are returned, evenly spread.
    """
    curves: dict[str, list[Line]] = {}
    label = outcome.experiment.label
    for line in outcome.lines:
        if any(
            line.setup[axis] not in (value if isinstance(value, list) else [value])
            for axis, value in plot.where.items()
        ):
            continue
        own = line.setup.get(plot.lines, "")
        is_variant = plot.lines == outcome.experiment.compare
        name = str(own) if is_variant or not plot.lines else f"{label(plot.lines)} {own}"
        curves.setdefault(name, []).append(line)
    if len(curves) > _MOST_LINES and plot.lines != outcome.experiment.compare:
        # Evenly spread over the axis, with its first and its last value.
        names = list(curves)
        step = (len(names) - 1) / (_MOST_LINES - 1)
        curves = {
            names[round(i * step)]: curves[names[round(i * step)]] for i in range(_MOST_LINES)
        }
    return curves


def _curve(axes: Any, plot: Plot, lines: list[Line], name: str, style: dict[str, Any]) -> None:
    values = [line.ours[plot.metric] for line in lines]
    means = [value.mean for value in values]
    errors = [
        [value.mean - value.low for value in values],
        [value.high - value.mean for value in values],
    ]
    x = [line.setup[plot.x] for line in lines]
    axes.errorbar(x, means, errors, label=name, markersize=4, capsize=3, linewidth=1.2, **style)


def _printed(axes: Any, plot: Plot, lines: list[Line], name: str, style: dict[str, Any]) -> None:
    points = [
        (line.setup[plot.x], line.printed[plot.metric])
        for line in lines
        if plot.metric in line.printed and plot.metric not in line.doubtful
    ]
    if points:
        x, y = zip(*points, strict=True)
        open_marker = {**style, "markerfacecolor": "none", "markersize": 7}
        axes.plot(x, y, label=name, linestyle="--", linewidth=0.9, **open_marker)

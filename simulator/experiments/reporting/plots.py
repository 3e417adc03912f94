"""Plots of experiments: our values with their intervals, and the printed values on top."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pliant.simulator.experiments.definition.definitions import Plot
from pliant.simulator.experiments.results import Line, Outcome

#: Okabe and Ito's colours, which people with colour vision deficiencies can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: The number of lines that one plot shows at most; more cannot be told apart.
_MOST_LINES = 8


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write_plots(folder: Path, outcome: Outcome) -> Iterator[tuple[Path, str]]:
    """Write the plots of an experiment as SVG and PNG.

    Yields:
        The path of each PNG file, with a description. Nothing if matplotlib is not installed.

    Raises:
        OSError: a file cannot be written.
    """
    if not can_plot():
        return
    for place, plot in enumerate(outcome.experiment.plots, 1):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{outcome.experiment.name}-{place}.png"
        _draw(outcome, plot, path)
        yield path, _title(outcome, plot)


def _title(outcome: Outcome, plot: Plot) -> str:
    label = outcome.experiment.label
    where = ", ".join(f"{label(axis)} {value}" for axis, value in plot.where.items())
    title = f"{outcome.experiment.name}: {label(plot.metric)} by {label(plot.x)}"
    return f"{title} ({where})" if where else title


def _draw(outcome: Outcome, plot: Plot, path: Path) -> None:
    from matplotlib.figure import Figure

    label = outcome.experiment.label
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for place, (name, lines) in enumerate(_curves(outcome, plot).items()):
        style = {
            "color": _COLOURS[place % len(_COLOURS)],
            "marker": _MARKERS[place % len(_MARKERS)],
        }
        _curve(axes, plot, lines, f"{name}, here" if name else "here", style)
        _printed(axes, plot, lines, f"{name}, printed" if name else "printed", style)
    axes.set_title(_title(outcome, plot), fontsize=11)
    axes.set_xlabel(label(plot.x))
    axes.set_ylabel(label(plot.metric))
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    axes.grid(color="#d9dde2", linewidth=0.6)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    # Without dates and random identifiers, the same results give the same files.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def _curves(outcome: Outcome, plot: Plot) -> dict[str, list[Line]]:
    """Return the lines of results of each curve, by the name of the curve."""
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
    if len(curves) > _MOST_LINES:
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

"""The report of a validation: tables as Ghafoor's 5.5 and 5.6, plots as in figures 5.6-5.17."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pliant.examples.experiments.adaptive_vs_rigid.experiment_rows import slug
from pliant.examples.experiments.adaptive_vs_rigid.table import number
from pliant.examples.experiments.adaptive_vs_rigid.validation import Validation
from pliant.simulator.experiments.definition.definitions import name_of
from pliant.simulator.experiments.reporting.real_runs import REAL_RUNS, write_real_runs
from pliant.simulator.pictures.figure import (
    COLOURS,
    can_draw,
    encoded,
    legend_outside,
    new_figure,
    titled_axes,
)

_COSTS = {
    "start_s": "start of a job's processes",
    "end_s": "end of a job's processes",
    "answer_s": "offer to answer",
    "negotiation_s": "offer to the beginning of the resize",
    "adaptation_s": "resize",
    "adaptation_s_per_processor": "resize, for each processor",
}


def write_validation(folder: Path, found: Sequence[Validation]) -> list[Path]:
    """Write a report, with plots if matplotlib is installed, and return the paths of its files.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "validation.json"
    entries = [{**asdict(each), "summary": each.summary()} for each in found]
    data.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    recorded = folder / REAL_RUNS
    write_real_runs(recorded, [each.real_run for each in found])
    pictures = _write_pictures(folder, found) if can_draw() else []
    page = folder / "validation.md"
    page.write_text(_page(found, pictures), encoding="utf-8")
    return [page, data, recorded, *pictures]


def _page(found: Sequence[Validation], pictures: Sequence[Path]) -> str:
    lines = ["# The simulator compared with real runs", ""]
    lines += [
        "## Distances of start and completion times",
        "",
        "Columns of Ghafoor's Table 5.5 (relative to the clock), and the distance of the "
        "completion relative to the job's turnaround.",
        "",
        "| run | start, mean | deviation | completion, mean | deviation | of turnaround, mean |",
        "|---|---|---|---|---|---|",
    ]
    for each in found:
        own = each.summary()
        names = ("start_mean", "start_deviation", "end_mean", "end_deviation", "turnaround_mean")
        lines.append(f"| {each.label} | {' | '.join(f'{own[name]:.4f}' for name in names)} |")
    lines += ["", "## Metrics", "", "| run | metric | real | simulated | difference, % |"]
    lines.append("|---|---|---|---|---|")
    for each in found:
        own = each.summary()
        for name, (real, simulated) in each.metrics.items():
            percent = 100 * own[f"{name}_difference"]
            values = f"{number(real)} | {number(simulated)} | {percent:.2f}"
            lines.append(f"| {each.label} | {name} | {values} |")
    lines += ["", "## Measured costs", "", "Means of each real run, in wall-clock seconds.", ""]
    lines.append(f"| run | {' | '.join(_COSTS.values())} |")
    lines.append(f"|---|{'---|' * len(_COSTS)}")
    for each in found:
        values = " | ".join(f"{each.costs[name]:.4f}" for name in _COSTS)
        lines.append(f"| {each.label} | {values} |")
    lines += ["", *(f"![{path.stem}]({path.name})\n" for path in pictures)]
    return "\n".join(lines).rstrip() + "\n"


def _write_pictures(folder: Path, found: Sequence[Validation]) -> list[Path]:
    paths = []
    for each in found:
        for kind, title in (("start", "start"), ("end", "completion")):
            path = folder / f"{slug(each.label)}-{title}.png"
            path.write_bytes(encoded(_times(each, kind, title), "png"))
            paths.append(path)
    for experiment in dict.fromkeys(each.experiment for each in found):
        runs = [each for each in found if each.experiment == experiment]
        for name, title in (
            ("utilization", "utilization"),
            ("mean_turnaround_s", "mean turnaround time (s of the model)"),
        ):
            path = folder / f"{slug(experiment)}-{name.replace('_', '-')}.png"
            path.write_bytes(encoded(_bars(runs, name, title), "png"))
            paths.append(path)
    return paths


def _times(each: Validation, kind: str, title: str) -> Any:
    """Return a figure of the real and simulated times of all jobs, with their distance below.

    Args:
        each: the comparison of a run with its simulation.
        kind: which times, ``start`` or ``end``.
        title: the name of these times.
    """
    jobs = sorted(each.distances, key=lambda distance: distance.job)
    numbers = [distance.job for distance in jobs]
    figure = new_figure(9.0, 5.0)
    axes = titled_axes(figure, f"{each.label}\n{title} times", "job", "seconds since the first job")
    real = [getattr(distance, f"real_{kind}_s") for distance in jobs]
    simulated = [getattr(distance, f"{kind}_s") for distance in jobs]
    axes.plot(numbers, real, color=COLOURS[0], marker="o", markersize=4, linewidth=0, label="real")
    axes.plot(
        numbers,
        simulated,
        color=COLOURS[1],
        marker="x",
        markersize=5,
        linewidth=0,
        label="simulated",
    )
    right = axes.twinx()
    right.bar(
        numbers,
        [getattr(distance, f"of_{kind}") for distance in jobs],
        color=COLOURS[2],
        alpha=0.4,
        label="distance",
    )
    right.set_ylabel("normalised distance")
    handles, labels = axes.get_legend_handles_labels()
    more, names = right.get_legend_handles_labels()
    axes.legend(handles + more, labels + names, fontsize=8, loc="upper left")
    return figure


def _bars(runs: Sequence[Validation], name: str, title: str) -> Any:
    figure = new_figure(9.0, 5.0)
    axes = titled_axes(figure, f"{runs[0].experiment}: {title}", "", title)
    places = range(len(runs))
    for shift, part, label in ((-0.2, 0, "real"), (0.2, 1, "simulated")):
        values = [run.metrics[name][part] for run in runs]
        x = [place + shift for place in places]
        axes.bar(x, values, width=0.38, color=COLOURS[part], label=label)
    axes.set_xticks(list(places), [name_of(run.setup) for run in runs], rotation=30, ha="right")
    legend_outside(axes)
    return figure

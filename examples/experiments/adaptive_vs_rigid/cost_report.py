"""The report of the cost of resizes: a table as Kumar's 2.1, plots as his figures 2.2 and 2.3."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliant.simulator.pictures.figure import (
    COLOURS,
    can_draw,
    encoded,
    legend_outside,
    new_figure,
    titled_axes,
)


def write_cost(folder: Path, found: Mapping[str, Any]) -> list[Path]:
    """Write the report, with plots if matplotlib is installed, and return the paths of its files.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data, page = folder / "cost.json", folder / "cost.md"
    data.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page.write_text(_page(found), encoding="utf-8")
    if not can_draw():
        return [page, data]
    pictures = [folder / "residual-load.png", folder / "processor-use.png"]
    for path, draw in zip(pictures, (_residual_load, _processor_use), strict=True):
        path.write_bytes(encoded(draw(found), "png"))
    return [page, data, *pictures]


def _page(found: Mapping[str, Any]) -> str:
    lines = [
        "# The cost of shrinking and expanding",
        "",
        f"`md` with {found['atoms']:,} atoms on {found['processors']} processors. Medians, in",
        "seconds: the pause of the program, and the times from the offer to the end of the resize",
        "and to the release of the last processor.",
        "",
        "| processors | resizes | pause | resized | released | MB moved |",
        "|---|---|---|---|---|---|",
    ]
    kinds = dict.fromkeys((entry["from"], entry["to"]) for entry in found["resizes"])
    for before, after in kinds:
        own = [
            entry for entry in found["resizes"] if (entry["from"], entry["to"]) == (before, after)
        ]
        values = [_median(own, name) for name in ("pause_s", "done_s", "released_s")]
        shown = ["" if value is None else f"{value:.3f}" for value in values]
        moved = (_median(own, "bytes_moved") or 0.0) / 1e6
        lines.append(f"| {before} to {after} | {len(own)} | {' | '.join(shown)} | {moved:.1f} |")
    residual = found["residual"]
    lines += [
        "",
        "Load of job 1 on the processors that it has vacated, in percent of a processor:",
        "",
        "| mean until all ranks have exited | mean, then | highest, then | ranks, then | samples |",
        "|---|---|---|---|---|",
        "| " + " | ".join(_shown(residual[name]) for name in _RESIDUAL) + " |",
    ]
    return "\n".join(lines) + "\n"


_RESIDUAL = (
    "exiting_mean_percent",
    "steady_mean_percent",
    "steady_highest_percent",
    "steady_ranks",
    "samples",
)


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _median(entries: list[Any], name: str) -> float | None:
    values = [entry[name] for entry in entries if entry[name] is not None]
    return statistics.median(values) if values else None


def _residual_load(found: Mapping[str, Any]) -> Any:
    figure = new_figure()
    title = "Load of job 1 on the processors that it vacates"
    axes = titled_axes(figure, title, "time (s)", "load of these processors (%)")
    x = [entry["at_s"] for entry in found["vacated"]]
    y = [entry["percent"] for entry in found["vacated"]]
    axes.plot(x, y, color=COLOURS[0], linewidth=1.0, label="load by job 1")
    for place, (start, _, end) in enumerate(found["shrunk"]):
        label = "job 1 is shrunk" if place == 0 else None
        axes.axvspan(start, end, color=COLOURS[4], alpha=0.25, linewidth=0, label=label)
    legend_outside(axes)
    return figure


def _processor_use(found: Mapping[str, Any]) -> Any:
    figure = new_figure()
    axes = titled_axes(figure, "Processor use of two jobs", "time (s)", "processors")
    x = [entry["at_s"] for entry in found["use"]]
    last = x[-1] if x else 0.0
    for place, job in enumerate((1, 2)):
        y = [entry[f"job_{job}"] for entry in found["use"]]
        axes.plot(x, y, color=COLOURS[place], linewidth=1.0, label=f"job {job}, used")
        phases = [phase for phase in found["phases"] if phase["job"] == job]
        for number, phase in enumerate(phases):
            end = last if phase["end_s"] is None else phase["end_s"]
            label = f"job {job}, held" if number == 0 else None
            held = [phase["processors"]] * 2
            style = {"color": COLOURS[place], "linestyle": "--", "linewidth": 1.4}
            axes.plot([phase["start_s"], end], held, label=label, **style)
    axes.set_ylim(bottom=0)
    legend_outside(axes)
    return figure

"""The results of real runs as a table, next to the simulation and the values in the papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pliant.examples.experiments.adaptive_vs_rigid.experiment_rows import (
    Row,
    simulate_without_costs,
)
from pliant.simulator.experiments.definition.definitions import name_of


def results_table(rows: Sequence[Row], results: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table of each metric: real, simulated without costs, and in the paper."""
    lines = [
        "| experiment | row | metric | real | simulated | printed |",
        "|---|---|---|---|---|---|",
    ]
    for row, result in zip(rows, results, strict=True):
        simulated = simulate_without_costs(row.spec, row.seed)
        for name, source in row.metrics.items():
            if source not in result["metrics"]:
                continue
            printed = row.printed.get(name)
            shown = [result["metrics"][source], simulated[source], printed]
            values = " | ".join("" if value is None else number(value) for value in shown)
            lines.append(f"| {row.experiment} | {name_of(row.setup)} | {name} | {values} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Return a number as text, with four digits."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"

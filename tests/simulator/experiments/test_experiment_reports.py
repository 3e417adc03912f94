"""Reports of experiments: one document as Markdown and HTML, and plots that show both values."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.simulator.experiments.definition.definitions import Experiment
from pliant.simulator.experiments.definition.reading import read_experiment
from pliant.simulator.experiments.reporting.document import (
    Block,
    Bullets,
    Code,
    Grid,
    Heading,
    Paragraph,
    Picture,
    as_html,
    as_markdown,
)
from pliant.simulator.experiments.reporting.plots import write_plots
from pliant.simulator.experiments.reporting.report_files import write_report
from pliant.simulator.experiments.results import ExperimentOutcome, conclude

DEFINITION = """
title: Two sizes of a machine
source: nobody
about: A paragraph.
assumed: {parameters.gap: "20 s, because nothing is known"}
run: {workload: ghafoor, strategy: max-fit}
seeds: 2
sweep: {malleable_pct: [0, 100], nodes: [256, 512]}
vary: {malleable_pct: parameters.malleable, nodes: parameters.processors}
metrics: {utilization: {from: utilization_work, within: 0.12}}
claims: [{metric: utilization, of: {malleable_pct: 100}, above: {malleable_pct: 0}}]
printed:
  - {source: Table 1, metric: utilization, down: malleable_pct, across: nodes,
     columns: [256, 512], rows: {0: [0.8, 0.7], 100: [0.9, null]}}
plots: [{y: utilization, x: malleable_pct, lines: nodes}]
labels: {malleable_pct: malleable jobs (%)}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    path = tmp_path / "two.yaml"
    path.write_text(DEFINITION, encoding="utf-8")
    return read_experiment(path)


def outcome_of(experiment: Experiment, *, rise: float) -> ExperimentOutcome:
    return conclude(
        experiment,
        [
            [
                {"utilization_work": 0.8 + rise * cell.setup["malleable_pct"] / 100 + seed / 1000}
                for seed in (0, 1)
            ]
            for cell in experiment.cells
        ],
    )


def test_a_document_is_written_in_two_formats() -> None:
    blocks: list[Block] = [
        Heading("Title <1>", 1),
        Paragraph("Text & more."),
        Bullets(["one", "two"]),
        Code("$ command"),
        Grid(("a", "b"), [("1|2", "3")]),
        Picture("plots/x.png", "a plot"),
    ]
    page = as_markdown(blocks)
    for text in ("# Title <1>", "- two", "$ command", "| 1\\|2 | 3 |", "![a plot](plots/x.png)"):
        assert text in page
    html = as_html(blocks)
    for text in ("<h1>Title &lt;1&gt;</h1>", "Text &amp; more.", "<td>1|2</td>", "<li>two</li>"):
        assert text in html
    assert html.startswith("<!DOCTYPE html>")


def test_long_tables_are_folded() -> None:
    grid = Grid(("a",), [(str(row),) for row in range(50)])
    assert "<details><summary>50 rows</summary>" in as_markdown([grid])
    assert "<details><summary>50 rows</summary>" in as_html([grid])
    assert "<details>" not in as_html([Grid(("a",), [("1",)])])


def test_a_section_has_verdict_assumptions_and_command(
    experiment: Experiment, tmp_path: Path
) -> None:
    (tmp_path / "report").mkdir()
    outcome = outcome_of(experiment, rise=0.1)
    pages = write_report(tmp_path / "report", [outcome], "pliant experiment report two")
    text = pages[0].read_text(encoding="utf-8")
    for part in (
        "$ pliant experiment report two",
        "| two | Two sizes of a machine | nobody | reproduced |",
        "- parameters.gap: 20 s, because nothing is known",
        "| 100 | 256 | utilization | 0.9000 |",
        "$ pliant experiment run two",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("rise", "verdict"), [(0.1, "reproduced"), (0.5, "same shape"), (-0.3, "not reproduced")]
)
def test_the_verdict_on_an_experiment(experiment: Experiment, rise: float, verdict: str) -> None:
    assert outcome_of(experiment, rise=rise).verdict == verdict


def test_a_plot_shows_our_values_and_the_printed_ones(
    experiment: Experiment, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra plots")
    ((path, alt),) = write_plots(tmp_path / "plots", outcome_of(experiment, rise=0.1))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert alt == "two: utilization by malleable jobs (%)"
    svg = path.with_suffix(".svg").read_text(encoding="utf-8")
    for text in ("malleable jobs (%)", "nodes 256, here", "nodes 256, printed"):
        assert text in svg

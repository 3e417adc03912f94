"""Write the report of several experiments: a Markdown page, an HTML page, and plots."""

from collections.abc import Sequence
from pathlib import Path

from pliant.simulator.experiments.definition.definitions import Experiment, ExperimentError
from pliant.simulator.experiments.reporting.curve_plots import write_curve_plots
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
from pliant.simulator.experiments.reporting.real_runs import RealRun
from pliant.simulator.experiments.reporting.report import experiment_blocks
from pliant.simulator.experiments.results import ExperimentOutcome
from pliant.simulator.pictures.figure import can_draw

PAGE = "experiments"
_INTRODUCTION = (
    "This page compares experiments of published papers with simulations by Pliant. It is made by "
    "the command below, which runs what has not been run yet. With --within, it does as many runs "
    "as the time allows, and continues when it is repeated.",
    "Each value is a mean over seeds with its 95 % confidence interval. Verdicts use the interval: "
    '"as printed" means that the whole interval is within the tolerance around the printed value, '
    '"differs" that no part of it is, and "too few runs" that other seeds could give another '
    'verdict. An experiment is "reproduced" if nine of ten judged values agree with the printed '
    'value or with theory and all claims hold; it has the "same shape" if nine of ten claims hold. '
    'Its verdict is "too few runs" if runs are missing that could change it.',
)
#: The processor time of a plot, as PNG and SVG, in seconds.
_PLOT_S = 1.0


def prepare_folder(folder: Path) -> None:
    """Create the folder of a report. Called before the simulations, because these can take hours.

    Raises:
        ExperimentError: the folder cannot be written.
    """
    probe = folder / f"{PAGE}.md"
    is_new = not probe.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with probe.open("a", encoding="utf-8"):
            pass
        if is_new:
            probe.unlink()
    except OSError as error:
        raise ExperimentError(f"--out {folder}: cannot be written: {error.strerror}") from None


def time_to_write(experiments: Sequence[Experiment]) -> float:
    """Return an estimate of the seconds that writing a report takes, mostly for its plots."""
    plots = sum(len(each.plots) + len(each.curves) for each in experiments)
    return plots * _PLOT_S if can_draw() else 0.0


def write_report(
    folder: Path,
    outcomes: Sequence[ExperimentOutcome],
    command: str,
    real: Sequence[RealRun] = (),
    left_out: Sequence[str] = (),
) -> list[Path]:
    """Write a report, and return the paths of its two pages (Markdown and HTML).

    Args:
        folder: the folder of the report.
        outcomes: the results of the experiments.
        command: the command that makes this report.
        real: runs with real jobs, which are shown with their experiments.
        left_out: a text for each experiment that was not run because it lacks workload logs, which
            names these logs.

    Raises:
        ExperimentError: a file cannot be written.
    """
    blocks: list[Block] = [
        Heading("Published experiments", 1),
        *(Paragraph(text) for text in _INTRODUCTION),
        Code(f"$ {command}"),
        Grid(
            ("experiment", "about", "source", "verdict", "runs"),
            [
                [
                    each.experiment.name,
                    each.experiment.title,
                    each.experiment.source,
                    each.verdict,
                    f"{each.runs} of {each.all_runs}",
                ]
                for each in outcomes
            ],
        ),
    ]
    if left_out:
        blocks += [Paragraph("Experiments that were left out because a workload log is missing:")]
        blocks += [Bullets(left_out)]
    if not can_draw():
        blocks.append(
            Paragraph("There are no plots because matplotlib is not installed (pliant[plots]).")
        )
    try:
        for outcome in outcomes:
            pictures = [
                Picture(path.relative_to(folder).as_posix(), alt)
                for write in (write_plots, write_curve_plots)
                for path, alt in write(folder / "plots", outcome)
            ]
            blocks += experiment_blocks(outcome, pictures, real)
        pages = {"md": as_markdown(blocks), "html": as_html(blocks)}
        for suffix, text in pages.items():
            (folder / f"{PAGE}.{suffix}").write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"--out {folder}: cannot be written: {error.strerror}") from None
    return [folder / f"{PAGE}.{suffix}" for suffix in pages]

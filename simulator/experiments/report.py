"""Results of experiments as JSON, as a table for a terminal, and as Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pliant.simulator.experiments.definitions import Experiment
from pliant.simulator.experiments.results import DIFFERS, UNDECIDED, Line

#: Printed for a claim if the interval of the differences contains 0.
NOT_TOLD_APART = "of sides not to be told apart (0 is within the interval)"
_HEADS = ("metric", "printed", "theory", "ours", "95 %", "verdict")


def as_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return one object for each line."""
    return [asdict(line) for line in lines]


def as_text(experiment: Experiment, lines: Sequence[Line]) -> str:
    """Return a table, followed by the claims and the lines that differ."""
    heads, cells = _heads(lines), list(_cells(lines))
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    body = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *cells)
    ]
    title = f"{experiment.name}: {experiment.title} ({experiment.source})"
    return "\n".join([title, "", *body, "", *_claims(lines), _summary(lines)])


def as_markdown(experiment: Experiment, lines: Sequence[Line]) -> str:
    """Return a section of a report."""
    heads = _heads(lines)
    rows = [heads, ["---"] * len(heads), *_cells(lines)]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    head = [f"## {experiment.name}: {experiment.title}", "", f"{experiment.source}.", ""]
    about = [experiment.about, ""] if experiment.about else []
    return "\n".join([*head, *about, *table, "", *_claims(lines), _summary(lines), ""])


def _heads(lines: Sequence[Line]) -> list[str]:
    return [*(lines[0].setup if lines else ()), *_HEADS]


def _cells(lines: Sequence[Line]) -> Iterator[list[str]]:
    for line in lines:
        setup = [str(value) for value in line.setup.values()]
        for name, ours in line.ours.items():
            yield [
                *setup,
                name,
                _number(line.printed.get(name)),
                _number(line.theory.get(name)),
                _number(ours.mean),
                f"{_number(ours.low)} – {_number(ours.high)}",
                line.verdicts[name],
            ]


def _claims(lines: Sequence[Line]) -> list[str]:
    """Return a list of the claims of all rows; empty if there are no claims."""
    entries = [
        f"- {_setup(line)}: {'' if found.holds else 'NOT '}{claim}, by {found.by.mean:.4g} "
        f"({found.by.low:.4g} – {found.by.high:.4g}), in {found.pairs} of {found.of} pairs"
        f"{'' if found.told_apart else f', {NOT_TOLD_APART}'}"
        for line in lines
        for claim, found in line.claims.items()
    ]
    return ["Claims, in pairs of runs of one seed:", "", *entries, ""] if entries else []


def _setup(line: Line) -> str:
    return ", ".join(f"{key} {value}" for key, value in line.setup.items())


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value and abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.0f}"


def _summary(lines: Sequence[Line]) -> str:
    doubt = _doubtful(lines)
    wrong = [line for line in lines if line.verdict.startswith((DIFFERS, UNDECIDED))]
    if not wrong:
        return f"All {len(lines)} lines agree, or are only reported.{doubt and ' '}{doubt}"
    named = [f"- {_setup(line)}: {line.verdict}" for line in wrong]
    head = f"{len(wrong)} of {len(lines)} lines differ, or need more runs to be judged:"
    return "\n".join([head, "", *named, *(["", doubt] if doubt else [])])


def _doubtful(lines: Sequence[Line]) -> str:
    """Return how many claims are not significant; an empty text if there are none."""
    claims = [found for line in lines for found in line.claims.values()]
    number = sum(not found.told_apart for found in claims)
    return f"Of {len(claims)} claims {number} are {NOT_TOLD_APART}." if number else ""

"""Results of experiments as JSON, as tables for a terminal, and as sections of a report."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pliant.simulator.confidence import Interval
from pliant.simulator.experiments.definition.definitions import Experiment
from pliant.simulator.experiments.reporting.document import (
    Block,
    Bullets,
    Code,
    Grid,
    Heading,
    Paragraph,
    number,
)
from pliant.simulator.experiments.reporting.real_runs import RealRun, real_run_blocks
from pliant.simulator.experiments.results import CANNOT, ExperimentOutcome, Line
from pliant.simulator.experiments.verdicts import DIFFERS, MIN_RUNS, UNDECIDED

#: Printed for a claim if the interval of the differences contains 0.
NOT_TOLD_APART = "of sides not to be told apart (0 is within the interval)"
_HEADS = ("metric", "printed", "theory", "ours", "95 %", "runs", "verdict")
#: The number of single claims that a report lists; of more, it lists those that do not hold.
_FEW = 12


def as_json(outcome: ExperimentOutcome) -> list[dict[str, Any]]:
    """Return the results of an experiment as JSON objects, one for each line of its table."""
    return [asdict(line) for line in outcome.lines]


def as_text(outcome: ExperimentOutcome) -> str:
    """Return the results as text for a terminal: a table, then claims and values that differ."""
    experiment = outcome.experiment
    parts = [f"{experiment.name}: {experiment.title} ({experiment.source})", ""]
    for block in (*missing_runs(outcome), *result_blocks(outcome, every_claim=True)):
        match block:
            case Grid(heads, rows):
                parts += [*_aligned([heads, *rows]), ""]
            case Bullets(items):
                parts += [*(f"- {item}" for item in items), ""]
            case Paragraph(text):
                parts += [text, ""]
            case _:
                pass
    return "\n".join(parts).rstrip()


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def experiment_blocks(
    outcome: ExperimentOutcome,
    pictures: Sequence[Block] = (),
    real: Sequence[RealRun] = (),
) -> list[Block]:
    """Return the section of a report about one experiment.

    Args:
        outcome: the result of the simulations.
        pictures: the plots of the experiment.
        real: runs with real jobs. Those of other experiments may be among them and are ignored.
    """
    experiment = outcome.experiment
    verdict = f"Verdict: {outcome.verdict}. {_counted(outcome)}".strip()
    if outcome.verdict == CANNOT:
        verdict = f"Verdict: cannot be reproduced because {experiment.not_reproducible}"
    blocks: list[Block] = [
        Heading(f"{experiment.name}: {experiment.title}"),
        Paragraph(f"Source: {experiment.source}."),
        Paragraph(verdict),
    ]
    blocks += [Paragraph(" ".join(part.split())) for part in experiment.about.split("\n\n") if part]
    if experiment.assumed:
        blocks += [Paragraph("Assumed, because the source does not give it:")]
        blocks += [Bullets([f"{key}: {why}" for key, why in experiment.assumed.items()])]
    blocks += [*missing_runs(outcome), *pictures, *result_blocks(outcome)]
    blocks += real_run_blocks(experiment, real)
    return [*blocks, Code(f"$ pliant experiment run {experiment.name}")]


def _counted(outcome: ExperimentOutcome) -> str:
    counts = outcome.counts()
    texts = [f"{number} {verdict}" for verdict, number in counts.items()]
    if claims := [found for _, found in outcome.claims if found.is_judged]:
        texts.append(f"{sum(found.holds for found in claims)} of {len(claims)} claims hold")
    if unjudged := len(outcome.claims) - len(claims):
        texts.append(f"{unjudged} claims {UNDECIDED}")
    if peaks := [peak for peak in outcome.peaks if peak.is_judged]:
        held = sum(peak.holds for peak in peaks)
        texts.append(f"{held} of {len(peaks)} maxima are where the source has them")
    return f"Values: {'; '.join(texts)}." if texts else ""


def missing_runs(outcome: ExperimentOutcome) -> Iterator[Block]:
    """Yield a text on how many runs are missing, and on the cells without any run.

    A cell is one combination of the experiment's parameters.
    """
    if outcome.is_complete:
        return
    text = f"{outcome.runs} of {outcome.all_runs} runs have been done."
    if outcome.lines:
        numbers = [line.runs for line in outcome.lines]
        each = " to ".join(map(str, sorted({min(numbers), max(numbers)})))
        text += f" Each line of the table has {each} of them."
        if min(numbers) < MIN_RUNS:
            text += " A single run has no interval, and so no verdict."
    yield Paragraph(text)
    if outcome.not_run:
        yield Paragraph(f"Cells without a run: {len(outcome.not_run)}.")
        more = len(outcome.not_run) - _FEW
        yield Bullets(outcome.not_run[:_FEW] + ([f"and {more} more"] if more > 0 else []))


def result_blocks(outcome: ExperimentOutcome, *, every_claim: bool = False) -> Iterator[Block]:
    """Yield the tables and claims of a result; yield nothing if no simulation has been run.

    With ``every_claim``, all claims are listed, and all lines whose values differ from the expected
    ones, even if there are many.
    """
    if not outcome.lines:
        return
    heads = [*outcome.lines[0].setup, *_HEADS]
    yield Grid(heads, list(_cells(outcome.lines)))
    if doubtful := list(_doubtful_values(outcome.lines)):
        yield Paragraph("Printed values that are doubtful, and therefore not judged:")
        yield Bullets(doubtful)
    if claims := list(_claims(outcome.lines, every_claim)):
        yield Paragraph("Claims, in pairs of runs of one seed:")
        yield Bullets(claims)
    if outcome.peaks:
        yield Paragraph("Maxima, by the means of the runs:")
        yield Bullets(
            [
                f"{found.label or 'all'}: {found.peak}: here at {found.highest_at}"
                + ("" if found.holds else ", NOT as claimed")
                if found.is_judged
                else f"{found.label or 'all'}: {found.peak}: {UNDECIDED}"
                for found in outcome.peaks
            ]
        )
    yield from _differences(outcome)
    yield from _interpolations(outcome)
    yield Paragraph(_head_of_summary(outcome.lines))
    wrong = [f"{_setup(line)}: {line.verdict}" for line in _wrong(outcome.lines)]
    if wrong and (every_claim or len(wrong) <= _FEW):
        yield Bullets(wrong)
    if doubt := _not_significant(outcome.lines):
        yield Paragraph(doubt)


def _cells(lines: Sequence[Line]) -> Iterator[list[str]]:
    for line in lines:
        setup = [str(value) for value in line.setup.values()]
        for name, ours in line.ours.items():
            yield [
                *setup,
                name,
                number(line.printed.get(name)),
                number(line.theory.get(name)),
                *_value_and_interval(ours, line.runs),
                line.verdicts[name],
            ]


def _value_and_interval(ours: Interval, runs: int) -> tuple[str, str, str]:
    """Return three texts for a table: the mean, its interval, and the number of runs.

    The interval of a single run is empty.
    """
    between = f"{number(ours.low)} – {number(ours.high)}" if runs >= MIN_RUNS else ""
    return number(ours.mean), between, str(runs)


def _doubtful_values(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        for metric, why in line.doubtful.items():
            yield f"{_setup(line)}, {metric} {number(line.printed[metric])}: {why}"


def _claims(lines: Sequence[Line], every_claim: bool) -> Iterator[str]:
    """Yield a text for each claim; if there are many, only for those that fail, and a count."""
    short = sum(len(line.claims) for line in lines) > _FEW and not every_claim
    held = total = unjudged = 0
    for line in lines:
        for claim, found in line.claims.items():
            if not found.is_judged:
                unjudged += 1
                if not short:
                    yield f"{_setup(line)}: {claim}: {UNDECIDED}, by {found.by.mean:.4g} in 1 pair"
                continue
            total += 1
            held += found.holds
            if found.holds and short:
                continue
            yield (
                f"{_setup(line)}: {'' if found.holds else 'NOT '}{claim}, by {found.by.mean:.4g} "
                f"({found.by.low:.4g} – {found.by.high:.4g}), in {found.pairs} of {found.of} pairs"
                f"{'' if found.told_apart else f', {NOT_TOLD_APART}'}"
            )
    if short and unjudged:
        yield f"{unjudged} claims: {UNDECIDED}, as there is only 1 pair"
    if short and total:
        yield f"{held} of {total} claims hold" + (", all others are above" if held < total else "")


def _differences(outcome: ExperimentOutcome) -> Iterator[Block]:
    if not outcome.differences:
        return
    yield Paragraph("Printed differences, the same from the printed values, and ours:")
    yield Grid(
        ("source", "metric", "at", "printed", "from printed values", "ours", "95 %", "runs"),
        [
            [
                found.difference.source,
                found.difference.metric + (" %" if found.difference.relative else " points"),
                f"{found.difference.axis} {found.at}",
                number(found.printed),
                number(found.of_printed),
                *_value_and_interval(found.ours, found.runs),
            ]
            for found in outcome.differences
        ],
    )


def _interpolations(outcome: ExperimentOutcome) -> Iterator[Block]:
    if not outcome.interpolations:
        return
    yield Paragraph("Values read from curves, linear between their points:")
    rows = []
    for found in outcome.interpolations:
        each = found.interpolation
        ours = (UNDECIDED if found.runs < MIN_RUNS else "not reached", "", str(found.runs))
        if found.ours:
            ours = _value_and_interval(found.ours, found.runs)
        where = ", ".join(f"{key} {value}" for key, value in each.where.items())
        rows.append(
            [
                each.source,
                f"{each.metric} at {each.other} {each.value:g}",
                ", ".join(filter(None, [where, f"{each.axis} {found.at}"])),
                number(found.printed),
                *ours,
            ]
        )
    yield Grid(("source", "metric", "at", "printed", "ours", "95 %", "runs"), rows)


def _setup(line: Line) -> str:
    return ", ".join(f"{key} {value}" for key, value in line.setup.items())


def _wrong(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.verdict.startswith((DIFFERS, UNDECIDED))]


def _head_of_summary(lines: Sequence[Line]) -> str:
    wrong = _wrong(lines)
    if not wrong:
        return f"All {len(lines)} lines agree, or are only reported."
    return f"{len(wrong)} of {len(lines)} lines differ, or need more runs to be judged."


def _not_significant(lines: Sequence[Line]) -> str:
    """Return a note on how many claims are not significant; empty if none."""
    claims = [found for line in lines for found in line.claims.values() if found.is_judged]
    count = sum(not found.told_apart for found in claims)
    return f"Of {len(claims)} claims {count} are {NOT_TOLD_APART}." if count else ""


def description(experiment: Experiment) -> str:
    """Return the description that ``pliant experiment show`` prints."""
    parts = [f"{experiment.name}: {experiment.title}", f"source: {experiment.source}"]
    if experiment.about:
        parts += ["", experiment.about]
    parts += ["", "axes:"]
    parts += [
        f"  {axis}: {', '.join(map(str, values))}" for axis, values in experiment.axes().items()
    ]
    runs = sum(cell.seeds for cell in experiment.cells)
    parts += [f"runs: {runs} in {len(experiment.cells)} rows", "metrics:"]
    for metric in experiment.metrics:
        within = f", printed values within {metric.within}" if metric.within else ""
        source = f" ({metric.source})" if metric.source != metric.name else ""
        parts.append(f"  {metric.name}{source}{within}")
    printed = sum(len(cell.printed) for cell in experiment.cells)
    parts.append(f"printed values: {printed}")
    claims = [f"  {_claim_side(claim.of)}: {claim}" for claim in experiment.claims]
    claims += [f"  {peak}" for peak in experiment.peaks]
    parts += ["claims:", *claims] if claims else []
    if experiment.assumed:
        parts += ["assumed:"]
        parts += [f"  {key}: {' '.join(why.split())}" for key, why in experiment.assumed.items()]
    if experiment.not_reproducible:
        parts += [f"cannot be reproduced because {' '.join(experiment.not_reproducible.split())}"]
    return "\n".join(parts)


def _claim_side(setup: Any) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in setup.items())

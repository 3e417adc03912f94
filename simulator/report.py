"""The output of a simulation: summary, comparison, JSON, and one CSV line per job."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from pliant.core.commands import Note
from pliant.simulator.confidence import Interval, interval
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.run.metrics import DESCRIPTIONS
from pliant.simulator.run.result import JobRecord
from pliant.simulator.run.user_metrics import USER_DESCRIPTIONS

COLUMNS = (
    *("id", "submit", "start", "end", "processors", "class", "turnaround", "wait", "resizes"),
    *("state", "reason", "profit", "initial_size", "final_size"),
    *("priority", "suspensions", "suspended_s"),
)
#: The mark of a value that differs significantly from the first column.
SIGNIFICANT = "*"


def intervals(runs: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    """Return each metric over independent runs with its 95 % confidence interval."""
    return {
        name: interval([run.get(name, 0.0) for run in runs])
        for name in dict.fromkeys(key for run in runs for key in run)
    }


def as_json(head: Mapping[str, object], runs: Sequence[Mapping[str, float]]) -> str:
    """Return the metrics as JSON: means over the runs, with intervals if there are several.

    Args:
        head: further keys and values, which come first.
        runs: the metrics of each run.
    """
    value: dict[str, object] = {**head}
    if len(runs) == 1:
        value |= runs[0]
    else:
        found = intervals(runs)
        value |= {name: each.mean for name, each in found.items()}
        value["intervals"] = {
            name: {"mean": each.mean, "low": each.low, "high": each.high}
            for name, each in found.items()
        }
    return json.dumps(value, indent=1, allow_nan=False)


def summary(runs: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """Yield a line for each metric; rarely used metrics are left out if they are 0."""
    found = intervals(runs)
    width = max(map(len, found))
    for name, each in found.items():
        if not each.mean and each.low == each.high and name in _IF_ANY:
            continue
        value = _number(each.mean)
        if len(runs) > 1:
            value += f"  [{_number(each.low)}, {_number(each.high)}]"
        yield f"{name:{width}}  {value:>14}  {_description(name)}"


def _description(name: str) -> str:
    """Return the description of a metric for the summary."""
    of_user = USER_DESCRIPTIONS.get(name.partition("(")[0])
    return of_user or DESCRIPTIONS.get(name, "share of the time")


_IF_ANY = frozenset(
    (
        *("timeout", "failed", "rejected", "profit", "late", "refusals", "counters"),
        *(name for name in DESCRIPTIONS if name.startswith("requests")),
        *("releases", "refused_parts"),
        *("suspensions", "suspended_s", "suspension_cost_s"),
    )
)


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4f}"


def differences(
    runs: Sequence[Mapping[str, float]], base: Sequence[Mapping[str, float]]
) -> dict[str, Interval]:
    """Return the mean difference of each metric from ``base``.

    Each run is compared with the run of ``base`` that has the same seed.
    """
    names = dict.fromkeys(key for run in (*base, *runs) for key in run)
    return {
        name: interval(
            [
                mine.get(name, 0.0) - other.get(name, 0.0)
                for mine, other in zip(runs, base, strict=True)
            ]
        )
        for name in names
    }


def comparison(
    labels: Sequence[str], runs: Sequence[Sequence[Mapping[str, float]]]
) -> Iterator[str]:
    """Yield a table with a line for each metric and a column for each strategy.

    If there are several runs, each mean is followed by half the width of its confidence interval.
    """
    found = [intervals(each) for each in runs]
    apart = [differences(each, runs[0]) for each in runs]
    names = dict.fromkeys(name for each in found for name in each)
    shown = [
        name
        for name in names
        if name not in _IF_ANY or any(each[name].mean for each in found if name in each)
    ]
    several = len(runs[0]) > 1
    rows = [["metric", *labels]]
    for name in shown:
        cells = []
        for place, each in enumerate(found):
            value = each.get(name)
            cell = "" if value is None else _number(value.mean)
            if several and value is not None:
                marked = place and name in found[0] and 0 not in apart[place][name]
                cell += f" ± {_number(value.high - value.mean)}{SIGNIFICANT if marked else ' '}"
            cells.append(cell)
        rows.append([name, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *numbers]).rstrip()
    if several:
        yield (
            f"{SIGNIFICANT} the difference from {labels[0]}, in pairs of runs of one seed, has a "
            "95 % interval without 0"
        )


def comparison_as_json(
    head: Mapping[str, object],
    settings: Sequence[Settings],
    runs: Sequence[Sequence[Mapping[str, float]]],
) -> str:
    """Return a comparison of strategies as JSON.

    Args:
        head: keys and values that do not depend on the strategy, which come first.
        settings: the settings of each strategy.
        runs: the metrics of the runs of each strategy.

    Returns:
        ``head``, and ``strategies``: for each one, its metrics as in `as_json` and, if it has
        several runs, their mean differences from those of the first strategy.
    """
    entries = []
    for place, (used, each) in enumerate(zip(settings, runs, strict=True)):
        named = {"strategy": used.strategy, "options": dict(used.options)}
        entry = json.loads(as_json(named, each))
        if place and len(each) > 1:
            entry["difference_from_first"] = {
                name: {"mean": found.mean, "low": found.low, "high": found.high}
                for name, found in differences(each, runs[0]).items()
            }
        entries.append(entry)
    return json.dumps({**head, "strategies": entries}, indent=1, allow_nan=False)


def write_jobs(file: TextIO, runs: Iterable[tuple[str, int, Iterable[JobRecord]]]) -> None:
    """Write jobs as CSV with ``COLUMNS``, in order of their numbers.

    Args:
        file: the file to write.
        runs: the strategy, the seed and the jobs of each run. If there are several strategies, the
            first column is the strategy; if there are several seeds, the next one is the seed.
            The start of a job that never started is empty.
    """
    writer = csv.writer(file, lineterminator="\n")
    tables = list(runs)
    marks = {
        "strategy": len({strategy for strategy, _, _ in tables}) > 1,
        "seed": len({seed for _, seed, _ in tables}) > 1,
    }
    writer.writerow((*(name for name, shown in marks.items() if shown), *COLUMNS))
    for strategy, seed, records in tables:
        named = zip((strategy, seed), marks.values(), strict=True)
        mark = tuple(value for value, shown in named if shown)
        for job in sorted(records, key=lambda record: record.id):
            writer.writerow((*mark, *_cells(job)))


def _cells(job: JobRecord) -> tuple[object, ...]:
    return (
        job.id,
        _time(job.submit),
        "" if job.start is None else _time(job.start),
        _time(job.end),
        job.processors,
        job.job_class,
        _time(job.turnaround),
        _time(job.wait),
        job.resizes,
        job.state.value,
        job.reason,
        _time(job.profit),
        job.processors,
        job.final_size,
        job.priority,
        job.suspensions,
        _time(job.suspended_s),
    )


def _time(value: float) -> str:
    """Return seconds as text to the microsecond, without trailing zeros."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def note_line(note: Note) -> str:
    """Return a line of the history as JSON, in the format of the server's ``history``."""
    return json.dumps(
        {
            "time": note.time,
            "kind": note.kind,
            "job": note.job,
            "text": note.text,
            "data": dict(note.data),
        },
        default=str,
    )

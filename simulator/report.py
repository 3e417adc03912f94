"""A simulation for people and programs: summary, JSON, one CSV line per job."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from pliant.core.commands import Note
from pliant.simulator.confidence import Interval, interval
from pliant.simulator.metrics import DESCRIPTIONS
from pliant.simulator.result import JobRecord

COLUMNS = ("id", "submit", "start", "end", "processors", "class", "turnaround", "wait", "resizes")


def intervals(runs: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    """Each metric over independent runs, with its 95 % confidence interval."""
    return {
        name: interval([run.get(name, 0.0) for run in runs])
        for name in dict.fromkeys(key for run in runs for key in run)
    }


def as_json(head: Mapping[str, object], runs: Sequence[Mapping[str, float]]) -> str:
    """One object: the metrics (means over the runs), and their intervals if there are several."""
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
    """A line for each metric that is not 0 everywhere, or that everybody asks for."""
    found = intervals(runs)
    width = max(map(len, found))
    for name, each in found.items():
        if not each.mean and each.low == each.high and name in _IF_ANY:
            continue
        value = _number(each.mean)
        if len(runs) > 1:
            value += f"  [{_number(each.low)}, {_number(each.high)}]"
        yield f"{name:{width}}  {value:>14}  {DESCRIPTIONS.get(name, 'share of the time')}"


_IF_ANY = frozenset(
    (
        *("timeout", "failed", "rejected", "profit", "late", "refusals", "counters"),
        *(name for name in DESCRIPTIONS if name.startswith("requests")),
        *("releases", "refused_parts"),
    )
)


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4f}"


def write_jobs(file: TextIO, runs: Iterable[tuple[int, Iterable[JobRecord]]]) -> None:
    """CSV with ``COLUMNS``, by number; the start of a job that never started is empty.

    Args:
        file: where to.
        runs: the seed of each run and its jobs; of several, the seed is the first column.
    """
    writer = csv.writer(file, lineterminator="\n")
    tables = list(runs)
    several = len(tables) > 1
    writer.writerow(("seed", *COLUMNS) if several else COLUMNS)
    for seed, records in tables:
        mark = (seed,) if several else ()
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
    )


def _time(value: float) -> str:
    """Seconds to the microsecond, without noise."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def note_line(note: Note) -> str:
    """A line of history as JSON, like the daemon's ``history`` answers."""
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

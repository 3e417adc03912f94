"""The columns of lists of jobs: what each shows, and which values of the server it needs.

Cells are made column by column, which takes half of the time of making them row by row. Where all
jobs of a block have the same values, one cell is made for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pliant.client.client_errors import UsageError
from pliant.client.listing.displayed_job_ids import TITLE_FIELDS, shortened, title_of
from pliant.client.listing.jobs_in_columns import JobBlock
from pliant.client.terminal.durations import format_bytes, format_duration, format_time
from pliant.client.terminal.tables import shorten, table_of_blocks

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

#: Names of jobs have at most this many characters in the usual table.
NAME_LIMIT = 32


class Column:
    """A column of a list of jobs: its meaning, the values it needs, and how to write its cells."""

    def __init__(
        self,
        about: str,
        fields: tuple[str, ...],
        cells: Callable[[JobBlock, float], Sequence[object]],
        right: bool = False,
    ) -> None:
        """Describe a column.

        Args:
            about: the meaning of the column, for the help.
            fields: the values of the server that it needs.
            cells: makes the cells of the jobs of a block, at a time of the server's clock; one cell
                alone stands for all of them.
            right: whether the cells are right-aligned.
        """
        self.about, self.fields, self.cells, self.right = about, fields, cells, right


class Shown:
    """A column to show, and its width in characters: 0 for as wide as needed."""

    def __init__(self, name: str, width: int = 0) -> None:
        self.name, self.width = name, width


def elapsed(
    submit: float | None, start: float | None, end: float | None, now: float
) -> float | None:
    """Return how many seconds a job has run or, before its start, waited; None if unknown."""
    begin = start or submit
    return None if begin is None else (end or now) - begin


def _text(field: str, about: str) -> Column:
    return Column(about, (field,), lambda jobs, _: [value or "-" for value in jobs.values[field]])


def _number(field: str, about: str) -> Column:
    def cells(jobs: JobBlock, _: float) -> list[object]:
        return ["-" if value is None else value for value in jobs.values[field]]

    return Column(about, (field,), cells, right=True)


def _time(field: str, about: str) -> Column:
    def cells(jobs: JobBlock, now: float) -> list[str]:
        return [format_time(value, now) for value in jobs.values[field]]

    return Column(about, (field,), cells)


def _span(field: str, about: str) -> Column:
    def cells(jobs: JobBlock, _: float) -> list[str]:
        return [format_duration(value) for value in jobs.values[field]]

    return Column(about, (field,), cells, right=True)


def _titles(jobs: JobBlock, _: float) -> list[str]:
    return [
        title_of(number, array, task, shortened(tasks) if tasks else None)
        for number, array, task, tasks in jobs.rows(*TITLE_FIELDS)
    ]


def _processors(jobs: JobBlock, _: float) -> list[str]:
    """Return how many processors each job runs on and, after ``+``, how many more it holds.

    For example, ``4+2`` is a job on 4 processors that still holds 2 others.
    """
    found = []
    for on, held in jobs.rows("processors", "held"):
        besides = (held or on or 0) - (on or 0)
        found.append(f"{on or 0}+{besides}" if besides else str(on or "-"))
    return found


def _sizes(jobs: JobBlock, _: float) -> list[str]:
    return [
        f"{sizes or '-'} ({prefer})" if prefer else sizes or "-"
        for sizes, prefer in jobs.rows("sizes", "prefer")
    ]


def _elapsed(jobs: JobBlock, now: float) -> list[str]:
    return [
        format_duration(elapsed(submit, start, end, now))
        for submit, start, end in jobs.rows("submit", "start", "end")
    ]


def _left(jobs: JobBlock, now: float) -> list[str]:
    return [
        format_duration(limit if end is None else max(0.0, end - now))
        for limit, end in jobs.rows("time_limit_s", "limit_end")
    ]


def _reason(jobs: JobBlock, _: float) -> list[str]:
    return [_outcome(*row) for row in jobs.rows("reason", "signal", "exit_code")]


def _outcome(reason: str | None, signal: int | None, exit_code: int | None) -> str:
    if reason:
        return reason
    if signal:
        return f"signal {signal}"
    return f"exit code {exit_code}" if exit_code else ""


def _code(jobs: JobBlock, _: float) -> list[str]:
    return [
        "-" if exit_code is None and not signal else f"{exit_code or 0}:{signal or 0}"
        for exit_code, signal in jobs.rows("exit_code", "signal")
    ]


def _nodes(jobs: JobBlock, _: float) -> list[str]:
    return [",".join(nodes) if nodes else "-" for nodes in jobs.values["nodes"]]


def _memory(jobs: JobBlock, _: float) -> list[str]:
    return [format_bytes(value) for value in jobs.values["memory_bytes"]]


def _starts(jobs: JobBlock, now: float) -> list[str]:
    """Return when jobs started, or when the server expects them to: ``~16:30:00``."""
    return [
        format_time(start, now) if start else f"~{format_time(at, now)}" if at else "-"
        for start, at in jobs.rows("start", EXPECTED_START)
    ]


#: The values of a contract.
_CONTRACT = ("contract", "state", "submit", "begin", "deadline", "expected_end", "promise")


def _contract_cells(place: int) -> Callable[[JobBlock, float], list[str]]:
    def cells(jobs: JobBlock, now: float) -> list[str]:
        return [
            _deadline_and_profit(dict(zip(_CONTRACT, row, strict=True)), now)[place]
            for row in jobs.rows(*_CONTRACT)
        ]

    return cells


def _deadline_and_profit(job: dict[str, Any], now: float) -> tuple[str, str]:
    """Return two cells, a job's deadline and its profit (EXPECTED/AGREED); ``-`` if it has none."""
    if not job.get("contract"):
        return "-", "-"
    profit = with_profit(job, now)["profit_now"]
    agreed = f"{job['contract']['profit']:g}"
    return (
        format_time(job["deadline"], now),
        f"{'?' if profit is None else format(profit, 'g')}/{agreed}",
    )


def with_profit(job: dict[str, Any], now: float) -> dict[str, Any]:
    """Return a copy of a job with ``profit_now``, the profit it earns if it ends as expected.

    A job without a contract (a deadline and a profit) is returned unchanged.
    """
    if not job.get("contract"):
        return job
    from pliant.core.values.profit_contract import contract_from_record, present_profit

    profit = present_profit(
        contract_from_record(job["contract"]),
        state=job["state"],
        submit=max(job["submit"], job.get("begin") or 0.0),
        end=job.get("expected_end"),
        promised=bool(job.get("promise")),
        now=now,
    )
    return {**job, "profit_now": profit}


#: A value that `jobstat` asks for in a request of its own.
EXPECTED_START = "expected_start"

#: All columns by their name, which is also their head.
COLUMNS: Mapping[str, Column] = {
    "id": Column("number of the job; of tasks of an array, 17_3", TITLE_FIELDS, _titles, True),
    "name": _text("name", "name"),
    "user": _text("user", "owner"),
    "account": _text("account", "account that is charged"),
    "class": _text("class", "rigid, moldable, malleable or evolving"),
    "type": _text("type", "mpi, uni or script"),
    "state": _text("state", "state"),
    "priority": Column(
        "priority",
        ("priority",),
        lambda jobs, _: [n or 0 for n in jobs.values["priority"]],
        right=True,
    ),
    "procs": Column("processors", ("processors", "held"), _processors),
    "sizes": Column("allowed sizes, and the preferred one", ("sizes", "prefer"), _sizes),
    "time": Column("how long it has run, or waited", ("submit", "start", "end"), _elapsed, True),
    "limit": _span("time_limit_s", "time limit (--time)"),
    "left": Column(
        "what is left of the time limit", ("time_limit_s", "limit_end"), _left, right=True
    ),
    "estimate": _span("estimate_s", "estimated run time (--estimate)"),
    "submit": _time("submit", "time of its submission"),
    "begin": _time("begin", "earliest time of its start (--begin)"),
    "start": _time("start", "time of its start"),
    "starts": Column("time of its start, or ~ the expected one", ("start",), _starts),
    "end": _time("end", "time of its end"),
    "ends": _time("expected_end", "expected end, by its estimate"),
    "deadline": Column("deadline", _CONTRACT, _contract_cells(0)),
    "profit": Column("expected profit / most", _CONTRACT, _contract_cells(1), right=True),
    "nodes": Column("its nodes", ("nodes",), _nodes),
    "run": _number("run", "number of the run; requeues start another one"),
    "code": Column("exit code:signal", ("exit_code", "signal"), _code),
    "memory": Column("memory in use", ("memory_bytes",), _memory, right=True),
    "stdout": _text("stdout", "file of its standard output"),
    "cwd": _text("cwd", "directory that it runs in"),
    "command": _text("command", "command line"),
    "reason": Column(
        "why it is in its state, or how it ended", ("reason", "signal", "exit_code"), _reason
    ),
}

#: Columns of the usual table. Those in `_IF_USED` are shown if a job has such a value.
USUAL = (
    *("id", "name", "user", "account", "class", "state", "priority", "procs", "sizes", "time"),
    *("start", "deadline", "ends", "profit", "reason"),
)
WIDE = (
    *("id", "name", "user", "account", "class", "state", "priority", "procs", "sizes", "time"),
    *("limit", "left", "submit", "starts", "end", "deadline", "ends", "profit", "code", "nodes"),
    *("command", "reason"),
)
NARROW = ("id", "name", "state", "procs", "time", "reason")
_IF_USED = {
    **{"account": "account", "priority": "priority"},
    **dict.fromkeys(("deadline", "ends", "profit"), "contract"),
}


def parse_format(text: str) -> tuple[Shown, ...]:
    """Return the columns of a format: ``id,name:20,state``.

    Raises:
        UsageError: if a column is unknown or a width is no number.
    """
    shown = []
    for part in text.split(","):
        name, colon, width = part.strip().partition(":")
        if name not in COLUMNS:
            raise UsageError(
                f"--format: {name!r} is no column; the columns are {', '.join(COLUMNS)}"
            )
        if colon and not (width.isascii() and width.isdigit() and 0 < int(width) <= 1000):
            raise UsageError(f"--format: {part!r}: write a width from 1 to 1000, as in {name}:20")
        shown.append(Shown(name, int(width or 0)))
    return tuple(shown)


def usual_columns(names: Sequence[str], *, name_limit: int = 0) -> tuple[Shown, ...]:
    """Return the columns with these names, for a standard table.

    Names of jobs are cut to ``name_limit`` characters; 0 means that they are not cut.
    """
    return tuple(Shown(name, -name_limit if name == "name" else 0) for name in names)


def fields_of(shown: Sequence[Shown]) -> tuple[str, ...]:
    """Return the names of the values that columns need, each once, id and state included."""
    names = [field for column in shown for field in COLUMNS[column.name].fields]
    names += [_IF_USED[column.name] for column in shown if column.name in _IF_USED]
    return tuple(dict.fromkeys(("id", "state", *names)))


def jobs_table(
    blocks: Sequence[JobBlock],
    now: float,
    shown: Sequence[Shown],
    *,
    every: bool = False,
    heads: bool = True,
) -> str:
    """Return jobs as a table.

    Args:
        blocks: the jobs.
        now: the time by the clock of the server, seconds since the epoch.
        shown: the columns.
        every: whether to show also optional columns for which no job has a value.
        heads: whether the first line has the names of the columns.
    """
    wanted = [
        column
        for column in shown
        if every
        or column.name not in _IF_USED
        or any(any(block.values[_IF_USED[column.name]]) for block in blocks)
    ]
    names = [column.name for column in wanted]
    cells = [
        (block.count, [_cut(COLUMNS[each.name].cells(block, now), each.width) for each in wanted])
        for block in blocks
    ]
    right = frozenset(name for name in names if COLUMNS[name].right)
    text = table_of_blocks(names, cells, right=right)
    return text if heads else text.partition("\n")[2]


def _cut(cells: Sequence[object], width: int) -> Sequence[object]:
    """Return cells cut and padded to a width.

    With a negative width, they are cut but not padded. With 0, they are unchanged.
    """
    if not width:
        return cells
    cut = [shorten(str(cell), abs(width)) for cell in cells]
    return cut if width < 0 else [cell.ljust(width) for cell in cut]

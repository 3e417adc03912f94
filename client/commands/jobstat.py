"""``jobstat``: list waiting and running jobs."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import gc
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pliant.client.connection import Connection
from pliant.client.terminal.durations import format_duration, format_time
from pliant.client.terminal.number_arguments import job_number
from pliant.client.terminal.output import (
    Parser,
    add_watch_options,
    print_error,
    print_json,
    print_text,
    run_command,
    watch,
    with_keys_first,
)
from pliant.client.terminal.tables import shorten, table_of_columns

PROG = "jobstat"

#: What every object of `--json` holds, in this order; more may follow.
FIELDS = (
    "id",
    "name",
    "user",
    "class",
    "state",
    "reason",
    "processors",
    "held",
    "sizes",
    "submit",
    "start",
    "end",
    "exit_code",
    "signal",
)

#: What the table shows.
_SHOWN = (
    *FIELDS,
    "account",
    "priority",
    "prefer",
    "deadline",
    "contract",
    "promise",
    "expected_end",
)

_HEADS = ("id", "name", "user", "class", "state", "procs", "sizes", "time", "start", "reason")
#: Columns that are shown when a job has a contract.
_CONTRACT_HEADS = ("deadline", "ends", "profit")
#: Columns of numbers.
_RIGHT = frozenset({"id", "priority", "procs", "time", "profit"})
_NAME_LIMIT = 32

#: The values of jobs by name; the values of a job are at the same place in all.
Columns = Mapping[str, Sequence[Any]]


def main(argv: Sequence[str] | None = None) -> int:
    """List jobs, or show one of them; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="List the jobs that wait and run, or those that are named.",
        epilog="procs 4+2: it runs on 4, and 2 more are reserved for it or not given back yet\n"
        "exit codes: 0 done, 1 a named job is not known, 2 wrong usage, 3 no server",
    )
    parser.add_argument("ids", nargs="*", type=job_number, metavar="id", help="a job")
    parser.add_argument(
        "-a", "--all", action="store_true", help="those that ended in the last hour, too"
    )
    parser.add_argument("--json", action="store_true", help="print JSON (implies --all)")
    add_watch_options(parser)
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _show(options))


def _show(options: argparse.Namespace) -> int:
    with Connection() as link:
        if options.watch:
            return watch(lambda: _frame(*_columns(link, options)), options.every)
        # The garbage collector would visit the values of 50,000 jobs again and again, which took a
        # seventh of the time. There are no cycles among them.
        gc.disable()
        try:
            known = _put_objects(link, options) if options.json else _put_table(link, options)
        finally:
            gc.enable()
    missing = [number for number in options.ids if number not in known]
    for number in missing:
        print_error(PROG, f"there is no job {number}")
    return 1 if missing else 0


def _put_objects(link: Connection, options: argparse.Namespace) -> set[int]:
    """Print the jobs as JSON; return their numbers."""
    answer = link.request("jobs", ids=options.ids or None, all=True, fields=None)
    now = answer.get("now", time.time())
    print_json([with_keys_first(_with_profit(job, now), FIELDS) for job in answer["jobs"]])
    return {job["id"] for job in answer["jobs"]}


def _put_table(link: Connection, options: argparse.Namespace) -> set[int]:
    """Print the jobs as a table; return their numbers."""
    jobs, now = _columns(link, options)
    if jobs["id"] or not options.ids:
        print_text(jobs_table(jobs, now))
    return set(jobs["id"])


def _columns(link: Connection, options: argparse.Namespace) -> tuple[Columns, float]:
    """Return the jobs, and the current time by the clock of the server."""
    every = options.all or bool(options.ids)
    answer = link.request("jobs", ids=options.ids or None, all=every, fields=_SHOWN)
    return columns_of(answer), answer.get("now", time.time())


def columns_of(answer: dict[str, Any]) -> Columns:
    """Return the values of the jobs of an answer: rows of values, or of an older server objects."""
    if "rows" not in answer:
        return {name: [job.get(name) for job in answer["jobs"]] for name in _SHOWN}
    if not answer["rows"]:
        return dict.fromkeys(answer["fields"], ())
    return dict(zip(answer["fields"], zip(*answer["rows"], strict=True), strict=True))


def _frame(jobs: Columns, now: float) -> str:
    return f"{format_time(now, now)}  {summary(jobs['state'])}\n\n{jobs_table(jobs, now)}"


def summary(states: Sequence[str]) -> str:
    """Return how many jobs are in each state: ``3 jobs: 2 RUNNING, 1 PENDING``."""
    counts: dict[str, int] = {}
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    parts = ", ".join(f"{count} {state}" for state, count in counts.items())
    total = f"{len(states)} job{'' if len(states) == 1 else 's'}"
    return total + (f": {parts}" if parts else "")


def jobs_table(jobs: Columns, now: float) -> str:
    """Return the jobs as a table; `time` is how long one has run, or waited.

    The account is shown if a job has one, the priority if a job has another one than the default,
    0. Columns of contracts are
    there if a job has one: its deadline, when it is expected to end, and the profit that such an
    end brings, of the most that was agreed on.
    """

    def rows(*names: str) -> Iterator[tuple[Any, ...]]:
        return zip(*(jobs[name] for name in names), strict=True)

    columns: list[Sequence[object]] = [
        jobs["id"],
        [shorten(name or "-", _NAME_LIMIT) for name in jobs["name"]],
        [user or "-" for user in jobs["user"]],
        [job_class or "-" for job_class in jobs["class"]],
        jobs["state"],
        [_processors(on or 0, held) for on, held in rows("processors", "held")],
        [_sizes(sizes, prefer) for sizes, prefer in rows("sizes", "prefer")],
        [
            format_duration(elapsed(submit, start, end, now))
            for submit, start, end in rows("submit", "start", "end")
        ],
        [format_time(start, now) for start in jobs["start"]],
    ]
    heads = [*_HEADS[:-1]]
    if any(jobs["account"]):
        place = heads.index("class")
        columns.insert(place, [account or "-" for account in jobs["account"]])
        heads.insert(place, "account")
    if any(jobs["priority"]):
        place = heads.index("procs")
        columns.insert(place, [priority or 0 for priority in jobs["priority"]])
        heads.insert(place, "priority")
    if any(jobs["contract"]):
        names = ("contract", "state", "submit", "deadline", "expected_end", "promise")
        contracts = [_contract(dict(zip(names, row, strict=True)), now) for row in rows(*names)]
        columns += zip(*contracts, strict=True)
        heads += _CONTRACT_HEADS
    columns.append([_outcome(*row) for row in rows("reason", "signal", "exit_code")])
    heads.append(_HEADS[-1])
    return table_of_columns(heads, columns, right=_RIGHT)


def _contract(job: dict[str, Any], now: float) -> tuple[str, str, str]:
    if not job.get("contract"):
        return "-", "-", "-"
    profit = _with_profit(job, now)["profit_now"]
    agreed = f"{job['contract']['profit']:g}"
    return (
        format_time(job["deadline"], now),
        format_time(job.get("expected_end"), now),
        f"{'?' if profit is None else format(profit, 'g')}/{agreed}",
    )


def _with_profit(job: dict[str, Any], now: float) -> dict[str, Any]:
    """Return a job with what its contract is worth at present, if it has one."""
    if not job.get("contract"):
        return job
    from pliant.core.values.profit_contract import contract_from_record, present_profit

    profit = present_profit(
        contract_from_record(job["contract"]),
        state=job["state"],
        submit=job["submit"],
        end=job.get("expected_end"),
        promised=bool(job.get("promise")),
        now=now,
    )
    return {**job, "profit_now": profit}


def elapsed(
    submit: float | None, start: float | None, end: float | None, now: float
) -> float | None:
    """Return the seconds a job has run, or waited when it has not started."""
    begin = start or submit
    return None if begin is None else (end or now) - begin


def _processors(on: int, held: int | None) -> str:
    """Return the processors on which a job runs, plus others that it holds: ``4+2``."""
    besides = (held or on) - on
    return f"{on}+{besides}" if besides else str(on or "-")


def _sizes(sizes: str | None, prefer: int | None) -> str:
    return f"{sizes or '-'} ({prefer})" if prefer else sizes or "-"


def _outcome(reason: str | None, signal: int | None, exit_code: int | None) -> str:
    if reason:
        return reason
    if signal:
        return f"signal {signal}"
    return f"exit code {exit_code}" if exit_code else ""


if __name__ == "__main__":
    sys.exit(main())

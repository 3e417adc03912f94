"""``jobstat``: the jobs that wait and run."""

from __future__ import annotations

import pliant.client.quiet  # noqa: F401

# isort: split

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from pliant.client.connection import Connection
from pliant.client.durations import format_duration, format_time
from pliant.client.numbers import job_number, seconds
from pliant.client.output import Parser, fail, pick, put, put_json, run_command, watch
from pliant.client.tables import shorten, table

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
_SHOWN = (*FIELDS, "prefer", "deadline", "contract", "promise", "expected_end")

_HEADS = ("id", "name", "user", "class", "state", "procs", "sizes", "time", "start", "reason")
#: Columns that are shown when a job has a contract.
_CONTRACT_HEADS = ("deadline", "ends", "profit")
_NAME_LIMIT = 32


def main(argv: Sequence[str] | None = None) -> int:
    """List jobs."""
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
    parser.add_argument("-w", "--watch", action="store_true", help="show it until Ctrl-C")
    parser.add_argument(
        "--every", type=seconds, default=1.0, metavar="S", help="with --watch: seconds (1)"
    )
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _show(options))


def _show(options: argparse.Namespace) -> int:
    with Connection() as link:
        if options.watch:
            return watch(lambda: _frame(*_jobs(link, options)), options.every)
        jobs, now = _jobs(link, options)
    if options.json:
        put_json([pick(_with_profit(job, now), FIELDS) for job in jobs])
    elif jobs or not options.ids:
        put(jobs_table(jobs, now))
    known = {job["id"] for job in jobs}
    missing = [number for number in options.ids if number not in known]
    for number in missing:
        fail(PROG, f"there is no job {number}")
    return 1 if missing else 0


def _jobs(link: Connection, options: argparse.Namespace) -> tuple[list[dict[str, Any]], float]:
    """Return the jobs, and the time by the clock that their times are of: the server's."""
    every = options.all or options.json or bool(options.ids)
    shown = None if options.json else _SHOWN
    answer = link.request("jobs", ids=options.ids or None, all=every, fields=shown)
    return jobs_of(answer), answer.get("now", time.time())


def jobs_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the jobs of an answer: rows of the fields that were asked for, or whole objects."""
    if "rows" not in answer:
        return list(answer["jobs"])  # all was asked for, or the server is an older one
    fields = answer["fields"]
    return [dict(zip(fields, row, strict=True)) for row in answer["rows"]]


def _frame(jobs: list[dict[str, Any]], now: float) -> str:
    return f"{format_time(now, now)}  {summary(jobs)}\n\n{jobs_table(jobs, now)}"


def summary(jobs: Sequence[dict[str, Any]]) -> str:
    """Return how many jobs are in each state: ``3 jobs: 2 RUNNING, 1 PENDING``."""
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job["state"]] = counts.get(job["state"], 0) + 1
    parts = ", ".join(f"{count} {state}" for state, count in counts.items())
    return f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}" + (f": {parts}" if parts else "")


def jobs_table(jobs: Sequence[dict[str, Any]], now: float) -> str:
    """Return the jobs as a table; `time` is how long one has run, or waited.

    Columns of contracts are there if a job has one: its deadline, when it is expected to end, and
    the profit that such an end brings, of the most that was agreed on.
    """
    contracts = any(job.get("contract") for job in jobs)
    rows = []
    for job in jobs:
        head = (
            job["id"],
            shorten(job.get("name") or "-", _NAME_LIMIT),
            job.get("user") or "-",
            job.get("class") or "-",
            job["state"],
            _processors(job),
            _sizes(job),
            format_duration(elapsed(job, now)),
            format_time(job.get("start"), now),
        )
        rows.append((*head, *(_contract(job, now) if contracts else ()), _outcome(job)))
    heads = (*_HEADS[:-1], *(_CONTRACT_HEADS if contracts else ()), _HEADS[-1])
    return table(heads, rows, right=frozenset({"id", "procs", "time", "profit"}))


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
    from pliant.core.contract import contract_from_record, present_profit

    profit = present_profit(
        contract_from_record(job["contract"]),
        state=job["state"],
        submit=job["submit"],
        end=job.get("expected_end"),
        promised=bool(job.get("promise")),
        now=now,
    )
    return {**job, "profit_now": profit}


def elapsed(job: dict[str, Any], now: float) -> float | None:
    """Return the seconds a job has run, or waited when it has not started."""
    begin = job.get("start") or job.get("submit")
    if begin is None:
        return None
    return float(job.get("end") or now) - float(begin)


def _processors(job: dict[str, Any]) -> str:
    """Return what it runs on, and what is held for it besides: ``4+2``."""
    on = job.get("processors") or 0
    besides = (job.get("held") or on) - on
    return f"{on}+{besides}" if besides else str(on or "-")


def _sizes(job: dict[str, Any]) -> str:
    preferred = f" ({job['prefer']})" if job.get("prefer") else ""
    return f"{job.get('sizes') or '-'}{preferred}"


def _outcome(job: dict[str, Any]) -> str:
    if job.get("reason"):
        return str(job["reason"])
    if job.get("signal"):
        return f"signal {job['signal']}"
    if job.get("exit_code"):
        return f"exit code {job['exit_code']}"
    return ""


if __name__ == "__main__":
    sys.exit(main())

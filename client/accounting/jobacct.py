"""``jobacct``: what ran, when, with which sizes, and how many processor-seconds it used."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from pliant.client.accounting.job_usage import (
    accounted,
    job_records,
    sizes_text,
    step_record,
    sums,
    swf_lines,
)
from pliant.client.connection import Connection
from pliant.client.listing.displayed_job_ids import TITLE_FIELDS, job_title
from pliant.client.listing.selection import (
    add_selection_options,
    moment_before,
    own_name,
    selection_fields,
    unknown_jobs,
)
from pliant.client.terminal.durations import format_duration, format_time
from pliant.client.terminal.number_arguments import job_names
from pliant.client.terminal.output import (
    Parser,
    check_writable,
    hint_for_slurm_option,
    print_csv,
    print_error,
    print_json,
    print_text,
    run_command,
)
from pliant.client.terminal.tables import shorten, table

PROG = "jobacct"
_DAY_S = 86400.0
_SUMS = ("user", "account", "day", "name", "state")
#: Jobs whose phases are asked for in one request.
_AT_ONCE = 5000

#: The values of every job. JSON has ``phases`` and ``steps``, too.
FIELDS = (
    *("id", "name", "user", "account", "class", "type", "state", "submit", "start", "end"),
    *("exit_code", "signal", "wait_s", "run_s", "processor_s", "efficiency", "estimate_s"),
    *("time_limit_s", "sizes"),
)
#: The values of arrays and their tasks. CSV has their columns for all jobs.
ARRAY_FIELDS = tuple(name for name in TITLE_FIELDS if name != "id")
#: The values of a step in JSON.
STEP_FIELDS = (
    *("run", "step", "name", "processors", "start", "end", "exit_code", "signal"),
    *("processor_s", "phases"),
)
_SUM_FIELDS = ("jobs", "processor_s", "mean_wait_s")
_HEADS = (
    *("id", "name", "user", "account", "state", "code", "start", "wait", "run", "processor_s"),
    *("eff", "sizes over time"),
)
_RIGHT = frozenset({"id", "wait", "run", "processor_s", "eff", "jobs", "mean_wait_s"})


def main(argv: Sequence[str] | None = None) -> int:
    """List the jobs of the last day with the resources that they used; return the exit code."""
    options = _parser().parse_args(argv)
    return run_command(PROG, lambda: _show(options))


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        hints=partial(hint_for_slurm_option, PROG),
        description="List what ran, when, with which sizes, and how many processor-seconds it "
        "used: your own jobs that ran since yesterday.",
        epilog="TIME: a span before now such as 12h or 7d, or 2026-12-24T16:30; 2026-12-24 is the "
        "beginning of that day\n"
        "eff: work for each processor-second by the speedup that was stated; 1 is the best\n"
        "exit codes: 0 done, 1 there are too many jobs, or a job is not known, 2 wrong usage, "
        "3 no server",
    )
    parser.add_argument("ids", nargs="*", type=job_names, metavar="id", help="only these jobs")
    add_selection_options(parser)
    parser.add_argument(
        "-a", "--all-users", action="store_true", help="jobs of all users, for operators"
    )
    parser.add_argument(
        "--since", type=moment_before, metavar="TIME", help="jobs that ran since then (1d)"
    )
    parser.add_argument("--until", type=moment_before, metavar="TIME", help="until then (now)")
    parser.add_argument("--sum", choices=_SUMS, help="add up the jobs of each of these")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--phases", action="store_true", help="a line for each size of each job")
    how.add_argument("--steps", action="store_true", help="a line for each step of each script")
    how.add_argument("--json", action="store_true", help="print JSON; times since the epoch")
    how.add_argument("--csv", action="store_true", help="print CSV; times since the epoch")
    how.add_argument(
        "--swf", action="store_true", help="print the Standard Workload Format, for simulators"
    )
    how.add_argument(
        "--paraver",
        metavar="NAME",
        help="write a trace of Paraver: the files NAME.prv, NAME.pcf and NAME.row",
    )
    return parser


def _show(options: argparse.Namespace) -> int:
    since = options.since
    if since is None and not options.ids:
        since = time.time() - _DAY_S
    with Connection() as link:
        records, complete, missing, now = _records(link, options, since)
        nodes = link.request("nodes")["nodes"] if options.swf or options.paraver else []
    until = now if options.until is None else options.until
    if options.swf:
        print_text("\n".join(swf_lines(records, sum(node["slots"] for node in nodes))))
    elif options.paraver:
        _write_paraver(options.paraver.removesuffix(".prv"), records, nodes, now)
    elif options.sum:
        _put(sums(records, options.sum, since, until), (options.sum, *_SUM_FIELDS), options)
    elif options.json:
        print_json(records)
    elif options.csv:
        print_csv(records, (*FIELDS, *ARRAY_FIELDS))
    elif options.steps:
        print_text(_steps(records, now))
    else:
        print_text(_phases(records, now) if options.phases else _table(records, now))
    for number in missing:
        print_error(PROG, f"there is no job {number}")
    if not complete:
        print_error(PROG, "there are more jobs than one answer holds; narrow --since, or --user")
    return 0 if complete and not missing else 1


def _records(
    link: Connection, options: argparse.Namespace, since: float | None
) -> tuple[list[dict[str, Any]], bool, list[int | str], float]:
    """Return the records of jobs, whether the list is complete, unknown ids, and the server's time.

    Args:
        link: the connection to the server.
        options: the options of the command line, which select the jobs.
        since: jobs that ended before this time are left out, seconds since the epoch; None if the
            options name jobs by number.
    """
    selected = selection_fields(options)
    if not (options.ids or options.all_users or "users" in selected):
        selected["users"] = [own_name()]
    if not options.ids:
        selected["since"] = since
    answer = link.request("jobs", ids=options.ids or None, all=True, fields=None, **selected)
    now = answer["now"]
    jobs = [
        job
        for job in answer["jobs"]
        if options.until is None or (job["start"] or job["submit"]) < options.until
    ]
    numbers = [job["id"] for job in jobs if "array" not in job]
    phases: list[dict[str, Any]] = []
    steps: dict[int, list[dict[str, Any]]] = {}
    with_steps = options.steps or (options.json and not options.sum)
    complete = bool(answer.get("complete", True))
    for begin in range(0, len(numbers), _AT_ONCE):
        part = link.request(
            "accounting", ids=numbers[begin : begin + _AT_ONCE], steps=with_steps or None
        )
        phases += part["phases"]
        complete &= part["complete"]
        for step in part.get("steps", []):
            steps.setdefault(step["job"], []).append(step)
    records = job_records(accounted(jobs), phases, now)
    if with_steps:
        records = [record | {"steps": _plain(steps.get(record["id"], []))} for record in records]
    return records, complete, unknown_jobs(answer, options.ids), now


def _plain(steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: step[name] for name in STEP_FIELDS} for step in map(step_record, steps)]


def _write_paraver(
    name: str, records: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]], now: float
) -> None:
    """Write a trace of Paraver into the files NAME.prv, NAME.pcf and NAME.row.

    Args:
        name: the first part of the names.
        records: the jobs with the periods in which they had the same processors.
        nodes: the nodes, as the server describes them.
        now: the time up to which running jobs are shown, in seconds since the epoch.
    """
    from pliant.client.accounting.paraver import paraver_files

    check_writable(f"{name}.prv")
    slots = [(node["name"], node["slots"]) for node in nodes]
    for ending, text in paraver_files(records, slots, now).items():
        with open(f"{name}.{ending}", "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def _put(
    rows: Sequence[dict[str, Any]], fields: Sequence[str], options: argparse.Namespace
) -> None:
    if options.json:
        print_json([{name: row[name] for name in fields} for row in rows])
    elif options.csv:
        print_csv(rows, fields)
    else:
        cells = [
            (
                row[fields[0]] or "-",
                row["jobs"],
                round(row["processor_s"]),
                format_duration(row["mean_wait_s"]),
            )
            for row in rows
        ]
        print_text(table(fields, cells, right=_RIGHT))


def _table(records: Sequence[dict[str, Any]], now: float) -> str:
    rows = [
        (
            job_title(record),
            shorten(record["name"] or "-", 32),
            record["user"] or "-",
            record["account"] or "-",
            record["state"],
            _code(record),
            format_time(record["start"], now),
            format_duration(record["wait_s"]),
            format_duration(record["run_s"]),
            round(record["processor_s"]),
            "-" if record["efficiency"] is None else f"{record['efficiency']:.2f}",
            sizes_text(record),
        )
        for record in records
    ]
    total = sum(record["processor_s"] for record in records)
    text = table(_HEADS, rows, right=_RIGHT)
    return f"{text}\n\n{round(total)} processor-seconds ({format_duration(total)} of one processor)"


def _phases(records: Sequence[dict[str, Any]], now: float) -> str:
    heads = ("id", "name", "run", "start", "end", "processors", "processor_s", "nodes")
    rows = [
        (
            job_title(record),
            shorten(record["name"] or "-", 32),
            phase["run"],
            format_time(phase["start"], now),
            "running" if phase["end"] is None else format_time(phase["end"], now),
            phase["processors"],
            round(phase["processor_s"]),
            shorten(",".join(phase["nodes"]), 40),
        )
        for record in records
        for phase in record["phases"]
    ]
    return table(heads, rows, right=_RIGHT | {"run", "processors"})


def _steps(records: Sequence[dict[str, Any]], now: float) -> str:
    heads = (
        *("id", "run", "step", "name", "start", "time", "code", "processor_s"),
        "sizes over time",
    )
    rows = [
        (
            job_title(record),
            step["run"],
            step["step"],
            shorten(step["name"] or "-", 40),
            format_time(step["start"], now),
            format_duration(max(0.0, step["end"] - step["start"])),
            _code(step),
            round(step["processor_s"]),
            sizes_text(step),
        )
        for record in records
        for step in record["steps"]
    ]
    return table(heads, rows, right=_RIGHT | {"step", "time"})


def _code(record: dict[str, Any]) -> str:
    if record["exit_code"] is None and not record["signal"]:
        return "-"
    return f"{record['exit_code'] or 0}:{record['signal'] or 0}"


if __name__ == "__main__":
    sys.exit(main())

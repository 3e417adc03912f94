"""``pliant share`` and ``pliant accounting``: the usage of users and jobs.

They show what ``sshare``, ``sacct`` and ``sreport`` of Slurm show.
"""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import Any

from pliant.client.connection import Connection
from pliant.client.listing.selection import moment_before
from pliant.client.terminal.durations import format_duration, format_time
from pliant.client.terminal.number_arguments import job_names
from pliant.client.terminal.output import (
    Parser,
    print_csv,
    print_error,
    print_json,
    print_text,
    run_command,
)
from pliant.client.terminal.tables import shorten, table

ACCOUNTING, SHARE = "pliant accounting", "pliant share"

#: The columns of phases, and those of sums after the name of what is added up.
FIELDS = (*("job", "run", "user", "account", "start", "end", "processors", "processor_s", "nodes"),)
SUM_FIELDS = ("jobs", "phases", "processor_s")
_SUMS = ("job", "user", "account")
_DAY_S = 86400.0


def accounting(argv: Sequence[str] | None = None) -> int:
    """List the processors that jobs used: one line for each phase, or sums."""
    parser = Parser(
        prog=ACCOUNTING,
        description="List each period in which a job had the same processors, or sums of them.",
        epilog="Users see their own jobs, operators those of all users.\n"
        "TIME: a span before now such as 12h or 7d, or 2026-12-24T16:30; 2026-12-24 is the "
        "beginning of that day\n"
        "processor_s: processor-seconds within --since and --until\n"
        "exit codes: 0 done, 1 there are too many phases, 2 wrong usage, 3 no server",
    )
    parser.add_argument("ids", nargs="*", type=job_names, metavar="id", help="only these jobs")
    parser.add_argument("--user", metavar="NAME", help="only the jobs of this user")
    parser.add_argument("--account", metavar="NAME", help="only the jobs of this account")
    parser.add_argument(
        "--since", type=moment_before, metavar="TIME", help="from this time on (1d)"
    )
    parser.add_argument("--until", type=moment_before, metavar="TIME", help="until this time (now)")
    parser.add_argument("--sum", choices=_SUMS, help="add up the phases of each of these")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON; times since the epoch")
    how.add_argument("--csv", action="store_true", help="print CSV; times since the epoch")
    options = parser.parse_args(argv)
    return run_command(ACCOUNTING, lambda: _show_phases(options))


def _show_phases(options: argparse.Namespace) -> int:
    since = options.since
    if since is None and not options.ids:
        since = time.time() - _DAY_S
    with Connection() as link:
        answer = link.request(
            "accounting",
            ids=options.ids or None,
            user=options.user,
            account=options.account,
            since=since,
            until=options.until,
        )
    now = answer["now"]
    phases = [with_seconds(phase, since, options.until, now) for phase in answer["phases"]]
    fields: tuple[str, ...] = FIELDS
    if options.sum:
        fields, phases = (options.sum, *SUM_FIELDS), sums(phases, options.sum)
    if options.json:
        print_json([{name: row[name] for name in fields} for row in phases])
    elif options.csv:
        print_csv(phases, fields)
    else:
        print_text(_table(phases, fields, now))
    if not answer["complete"]:
        print_error(
            ACCOUNTING, "there are more phases than one answer holds; narrow --since and --until"
        )
        return 1
    return 0


def with_seconds(
    phase: dict[str, Any], since: float | None, until: float | None, now: float
) -> dict[str, Any]:
    """Return a phase with ``processor_s``, its processor-seconds from ``since`` to ``until``.

    A phase is a period in which a job had the same processors. A phase without an end lasts until
    ``now``. If ``since`` or ``until`` is None, the phase is not cut off on that side.
    """
    end = now if phase["end"] is None else phase["end"]
    begin = phase["start"] if since is None else max(phase["start"], since)
    last = end if until is None else min(end, until)
    return {**phase, "processor_s": phase["processors"] * max(0.0, last - begin)}


def sums(phases: Iterable[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Return a row for each value of the field ``by``: its jobs, phases and processor-seconds.

    A phase is a period in which a job had the same processors.
    """
    found: dict[Any, dict[str, Any]] = {}
    jobs: dict[Any, set[int]] = {}
    for phase in phases:
        row = found.setdefault(phase[by], {by: phase[by], "phases": 0, "processor_s": 0.0})
        row["phases"] += 1
        row["processor_s"] += phase["processor_s"]
        jobs.setdefault(phase[by], set()).add(phase["job"])
    return [{**found[key], "jobs": len(jobs[key])} for key in sorted(found)]


def _table(rows: Sequence[dict[str, Any]], fields: Sequence[str], now: float) -> str:
    right = frozenset({"job", "run", "processors", "processor_s", "jobs", "phases"})
    cells = [[_cell(name, row[name], now) for name in fields] for row in rows]
    total = sum(row["processor_s"] for row in rows)
    text = table(list(fields), cells, right=right)
    return f"{text}\n\n{round(total)} processor-seconds ({format_duration(total)} of one processor)"


def _cell(name: str, value: Any, now: float) -> object:
    if name in ("start", "end"):
        return "running" if value is None else format_time(value, now)
    if name == "nodes":
        return shorten(",".join(value), 40)
    if name == "processor_s":
        return round(value)
    return value if value != "" else "-"


_SHARE_HEADS = ("account", "user", "shares", "norm", "usage", "part", "factor", "procs")
_SHARE_RIGHT = frozenset(_SHARE_HEADS[2:])


def share(argv: Sequence[str] | None = None) -> int:
    """List the shares, the usage and the fair-share factors of users."""
    parser = Parser(
        prog=SHARE,
        description="List the shares, the usage and the fair-share factors of users.",
        epilog="norm: part of the shares of all siblings; usage: processor-seconds, with decay\n"
        "part: part of the usage of all siblings; factor: 2^(-part/norm), 0.5 is the fair part\n"
        "exit codes: 0 done, 2 wrong usage, 3 no server",
    )
    parser.add_argument("--user", metavar="NAME", help="only this user")
    parser.add_argument("--account", metavar="NAME", help="only this account")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    return run_command(SHARE, lambda: _show_shares(options))


def _show_shares(options: argparse.Namespace) -> int:
    with Connection() as link:
        answer = link.request("shares")
    rows = [row for row in answer["shares"] if _wanted(row, options)]
    if options.json:
        print_json({"half_life_s": answer["half_life_s"], "shares": rows})
        return 0
    half_life_s = answer["half_life_s"]
    decay = "no decay" if half_life_s is None else f"half-life {format_duration(half_life_s)}"
    print_text(f"{shares_table(rows)}\n\n{decay}")
    return 0


def _wanted(row: dict[str, Any], options: argparse.Namespace) -> bool:
    return options.user in (None, row["user"]) and options.account in (None, row["account"])


def shares_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the fair-share rows of users and accounts as a table. Account rows have no user."""
    cells = [
        (
            row["account"] or "-",
            row["user"] or "-",
            f"{row['shares']:g}",
            f"{row['normalised_shares']:.4f}",
            round(row["seconds"]),
            f"{row['normalised_usage']:.4f}",
            f"{row['factor']:.4f}",
            row["processors"],
        )
        for row in rows
    ]
    return table(_SHARE_HEADS, cells, right=_SHARE_RIGHT)

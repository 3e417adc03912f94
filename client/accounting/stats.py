"""``pliant stats``: how much of the cluster was used, how long jobs waited, and by whom."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pliant.client.accounting.job_usage import job_records, sums
from pliant.client.connection import Connection
from pliant.client.listing.selection import moment_before
from pliant.client.reconnecting import FINAL_STATES
from pliant.client.terminal.durations import format_duration
from pliant.client.terminal.output import Parser, print_json, print_text, run_command
from pliant.client.terminal.tables import table

PROG = "pliant stats"
#: Users that the text lists.
_MOST_USERS = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Show statistics of the last day, or of a chosen period; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Show how much of the cluster was used, how long jobs waited, and by whom.",
        epilog="Users see the use by their own jobs, operators that by all jobs.\n"
        "exit codes: 0 done, 2 wrong usage, 3 no server",
    )
    parser.add_argument("--since", type=moment_before, metavar="TIME", help="since then (1d)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _show(options))


def _show(options: argparse.Namespace) -> int:
    since = moment_before("1d") if options.since is None else options.since
    with Connection() as link:
        nodes = link.request("nodes")
        jobs = link.request("jobs", all=True, fields=None, since=since)
        phases = link.request("accounting", since=since)
    found = statistics(nodes, jobs["jobs"], phases, since, jobs.get("now", time.time()))
    found["complete"] = bool(jobs.get("complete", True) and phases["complete"])
    if options.json:
        print_json(found)
    else:
        print_text(statistics_text(found))
    return 0


def statistics(
    nodes: Mapping[str, Any],
    jobs: Sequence[Mapping[str, Any]],
    phases: Mapping[str, Any],
    since: float,
    now: float,
) -> dict[str, Any]:
    """Return the statistics of a period, computed from the server's answers.

    Args:
        nodes: the server's answer about nodes.
        jobs: the jobs that have not ended, and those that ended after ``since``.
        phases: the server's answer about phases, periods in which a job had the same processors,
            after ``since``.
        since: beginning of the period, in seconds since the epoch.
        now: end of the period, in seconds since the epoch.
    """
    known = {job["id"] for job in jobs}
    rows = [phase for phase in phases["phases"] if phase["job"] in known]
    records = job_records(jobs, rows, now)
    usage = [row for row in sums(records, "user", since, now) if row["processor_s"] > 0]
    used = sum(row["processor_s"] for row in usage)
    processors = sum(node["slots"] for node in nodes["nodes"] if node["state"] != "SPARE")
    ended = [job for job in jobs if job["state"] in FINAL_STATES]
    waits = sorted(
        job["start"] - job["submit"] for job in jobs if job["start"] and job["start"] >= since
    )
    return {
        "since": since,
        "now": now,
        "strategy": nodes["strategy"],
        "nodes": len(nodes["nodes"]),
        "processors": processors,
        "processors_used": sum(node["used"] for node in nodes["nodes"]),
        "states": dict(sorted(Counter(job["state"] for job in jobs).items())),
        "ended": len(ended),
        "processor_s": used,
        "utilization": used / (processors * (now - since)) if processors and now > since else None,
        "all_users": bool(phases.get("all_users")),
        "mean_wait_s": sum(waits) / len(waits) if waits else None,
        "median_wait_s": waits[len(waits) // 2] if waits else None,
        "longest_wait_s": waits[-1] if waits else None,
        "users": sorted(usage, key=lambda row: -row["processor_s"]),
    }


def statistics_text(found: Mapping[str, Any]) -> str:
    """Return the result of `statistics` as the text that is printed."""
    span = format_duration(found["now"] - found["since"])
    states = ", ".join(f"{count} {state}" for state, count in found["states"].items()) or "none"
    whose = "all jobs" if found["all_users"] else "your jobs"
    use = found["utilization"]
    lines = [
        f"cluster  {found['nodes']} nodes, {found['processors_used']} of {found['processors']} "
        f"processors in use, strategy {found['strategy']}",
        f"jobs     {states}; {found['ended']} ended in the last {span}",
        f"use      {round(found['processor_s'])} processor-seconds by {whose}"
        + (f", {100 * use:.1f} % of the cluster" if use is not None else ""),
        f"wait     mean {format_duration(found['mean_wait_s'])}, median "
        f"{format_duration(found['median_wait_s'])}, longest "
        f"{format_duration(found['longest_wait_s'])}",
    ]
    if not found["complete"]:
        lines.append("there are more jobs than one answer holds: the oldest are left out")
    rows = [
        (row["user"], row["jobs"], round(row["processor_s"]), format_duration(row["mean_wait_s"]))
        for row in found["users"][:_MOST_USERS]
    ]
    if rows:
        heads = ("user", "jobs", "processor_s", "mean wait")
        lines += ["", table(heads, rows, right=frozenset(heads[1:]))]
    return "\n".join(lines)

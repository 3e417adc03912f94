"""``pliant audit``: who submitted, changed or was refused what, and when."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from pliant.client.connection import Connection
from pliant.client.listing.selection import moment_before
from pliant.client.terminal.durations import format_time
from pliant.client.terminal.output import Parser, print_error, print_json, print_text, run_command
from pliant.client.terminal.tables import shorten, table

PROG = "pliant audit"
#: The fields of each object of `--json`.
FIELDS = ("time", "user", "operation", "result", "job", "text", "data")
_ASKED = (
    *("id", "step", "ids", "users", "states", "names", "node", "size", "release", "priority"),
    *("reason", "name", "program", "sizes", "strategy", "options"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """List the requests of users, and whether they were granted; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="List submissions, changes of jobs and nodes, and refused requests.",
        epilog="Users see their own requests, operators those of all users.\n"
        "The last 10,000 changes and 1,000 refusals are kept, and all submissions.\n"
        "exit codes: 0 done, 1 there are more than 20,000: the newest are shown, 2 wrong usage, "
        "3 no server",
    )
    parser.add_argument("--since", type=moment_before, metavar="TIME", help="since then (1d)")
    parser.add_argument("-u", "--user", metavar="NAME", help="only requests of this user")
    parser.add_argument("--operation", metavar="NAME", help="only these, such as submit or cancel")
    parser.add_argument("--refused", action="store_true", help="only refused requests")
    parser.add_argument("--json", action="store_true", help="print JSON; times since the epoch")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _show(options))


def _show(options: argparse.Namespace) -> int:
    since = moment_before("1d") if options.since is None else options.since
    with Connection() as link:
        answer = link.request("audit", since=since)
    events = [event for event in answer["events"] if _is_wanted(event, options)]
    if options.json:
        print_json([{name: event[name] for name in FIELDS} for event in events])
    else:
        print_text(audit_table(events))
    if answer["complete"]:
        return 0
    print_error(PROG, "there are more requests than one answer holds: the newest are shown")
    return 1


def _is_wanted(event: Mapping[str, Any], options: argparse.Namespace) -> bool:
    return (
        options.user in (None, event["user"])
        and options.operation in (None, event["operation"])
        and not (options.refused and event["result"] != "refused")
    )


def audit_table(events: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of requests with the columns time, user, request and result."""
    now = events[-1]["time"] if events else None
    rows = [
        (
            format_time(event["time"], now),
            event["user"] or "-",
            event["operation"] or "-",
            shorten(_asked(event), 60),
            f"refused: {event['text']}" if event["result"] == "refused" else "done",
        )
        for event in events
    ]
    return table(("time", "user", "operation", "asked for", "result"), rows)


def _asked(event: Mapping[str, Any]) -> str:
    if event["operation"] == "submit" and event["result"] == "done":
        return f"job {event['job']}"
    data = event["data"]
    return ", ".join(f"{name} {data[name]}" for name in _ASKED if name in data) or "-"

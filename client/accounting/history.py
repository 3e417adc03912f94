"""``pliant history``: what has happened to jobs and nodes, and what happens now."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pliant.client.connection import Connection
from pliant.client.listing.selection import moment_before
from pliant.client.reconnecting import follow_changes
from pliant.client.terminal.event_text import event_line, history_text
from pliant.client.terminal.number_arguments import job_name
from pliant.client.terminal.output import Parser, print_error, print_json, print_text, run_command

PROG = "pliant history"


def main(argv: Sequence[str] | None = None) -> int:
    """Show the events of jobs and nodes; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Show what has happened to a job, or to all jobs and nodes that you may see.",
        epilog="With --follow, one line per event; with --json, too, one object per line.\n"
        "exit codes: 0 done, 1 the server refused, 2 wrong usage, 3 no server",
    )
    parser.add_argument("id", nargs="?", type=job_name, metavar="id", help="a job, or a task: 17_3")
    parser.add_argument("-f", "--follow", action="store_true", help="show new events until Ctrl-C")
    parser.add_argument(
        "--since", type=moment_before, metavar="TIME", help="events since then (1d)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON; times since the epoch")
    options = parser.parse_args(argv)
    return run_command(
        PROG,
        lambda: show_history(
            options.id, follow=options.follow, since=options.since, as_json=options.json
        ),
    )


def show_history(
    job: int | str | None,
    *,
    follow: bool = False,
    since: float | None = None,
    as_json: bool = False,
) -> int:
    """Print events of the history; return the exit code.

    Args:
        job: only events of this job; None for all that the user may see.
        follow: print new events until the user interrupts.
        since: only events from this time on, seconds since the epoch.
        as_json: print JSON.
    """
    with Connection() as link:
        if follow:
            for event in _new_events(link, job, since):
                print_text(json.dumps(event) if as_json else event_line(event))
                sys.stdout.flush()
            return 0
        events, complete = _stored_events(link, job, since)
    chosen = [event for event in events if since is None or event["time"] >= since]
    if as_json:
        print_json(chosen)
    else:
        print_text(history_text(chosen))
    if not complete:
        print_error(PROG, "older events are left out: choose a time with --since")
    return 0


def _stored_events(
    link: Connection, job: int | str | None, since: float | None
) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the stored events of one job or of all, and whether these are all that were asked for.

    Without ``since``, the server sends only its newest events, so older ones may be missing. With
    ``since`` (seconds since the epoch), all events from this time on are returned.
    """
    if since is None:
        answer = link.request("history", id=job)
        return answer["events"], bool(answer.get("complete", True))
    answer = link.request("history", id=job, since=since)
    events = list(answer["events"])
    while (after := answer.get("next")) is not None:
        answer = link.request("history", id=job, since=since, after=after)
        events += answer["events"]
    return events, True


def _new_events(
    link: Connection, job: int | str | None, since: float | None
) -> Iterator[Mapping[str, Any]]:
    """Yield the stored events from the time ``since`` on, then each new event as it happens.

    If ``since`` is None, all stored events of the job come first. If ``job`` is None, too, there
    are only new events.
    """
    start: dict[str, Any] = {"since": since}
    if since is None and job is not None:
        start = {"after": 0}
    for message in follow_changes(link, id=job, events_only=True, **start):
        yield from message.get("events", ())


if __name__ == "__main__":
    sys.exit(main())

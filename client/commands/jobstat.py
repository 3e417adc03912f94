"""``jobstat``: list waiting and running jobs."""

from __future__ import annotations

import pliant.client.terminal.quick_startup
import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from functools import partial

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.connection import Connection
from pliant.client.listing.columns import (
    COLUMNS,
    EXPECTED_START,
    NAME_LIMIT,
    NARROW,
    USUAL,
    WIDE,
    Shown,
    fields_of,
    jobs_table,
    parse_format,
    usual_columns,
    with_profit,
)
from pliant.client.listing.jobs_in_columns import JobBlock, blocks_of
from pliant.client.listing.selection import (
    add_selection_options,
    add_since_option,
    names_ended_jobs,
    selection_fields,
    unknown_jobs,
)
from pliant.client.reconnecting import ChangeSignal
from pliant.client.terminal.durations import format_time
from pliant.client.terminal.number_arguments import job_names
from pliant.client.terminal.output import (
    Parser,
    add_watch_options,
    hint_for_slurm_option,
    print_error,
    print_json,
    print_text,
    run_command,
    terminal_columns,
    with_keys_first,
)
from pliant.client.terminal.tables import shorten

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

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


def main(argv: Sequence[str] | None = None) -> int:
    """List jobs, or show some of them; return the exit code."""
    options = _parser().parse_args(argv)
    return run_command(PROG, lambda: _show(options))


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        hints=partial(hint_for_slurm_option, PROG),
        description="List the jobs that wait and run, or those that are named or selected.",
        epilog="procs 4+2: the job runs on 4 processors; 2 more are reserved for it, or are\n"
        "not free yet after a shrink\n"
        "starts ~16:30: the server expects the job to start then, if all jobs run as long as they\n"
        "state\n"
        f"columns for --format: {', '.join(COLUMNS)}\n"
        "exit codes: 0 done, 1 a named job is not known, 2 wrong usage, 3 no server",
    )
    parser.add_argument(
        "ids",
        nargs="*",
        type=job_names,
        metavar="id",
        help="a job; of an array: 17, 17_3, 17_[5-10]",
    )
    add_selection_options(parser)
    parser.add_argument(
        "-a", "--all", action="store_true", help="list jobs that ended in the last hour, too"
    )
    add_since_option(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "-O",
        "--format",
        type=_format,
        metavar="COLUMNS",
        help="show these columns; a number is the width of a column: id,name:20,state",
    )
    how.add_argument("-l", "--wide", action="store_true", help="show more columns, and whole names")
    how.add_argument(
        "--narrow", action="store_true", help="show fewer columns, cut at the width of the terminal"
    )
    how.add_argument("--start", action="store_true", help="show the expected start of waiting jobs")
    how.add_argument("--json", action="store_true", help="print JSON (implies --all)")
    parser.add_argument(
        "--no-header", action="store_true", help="leave out the line with the names of the columns"
    )
    add_watch_options(parser)
    return parser


def _format(text: str) -> tuple[Shown, ...]:
    try:
        return parse_format(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def _shown(options: argparse.Namespace) -> tuple[Shown, ...]:
    """Return the columns that the options select."""
    if options.format:
        return tuple(options.format)
    if options.wide:
        return usual_columns(WIDE)
    if options.narrow:
        return usual_columns(NARROW, name_limit=NAME_LIMIT)
    names = [("starts" if name == "start" else name) if options.start else name for name in USUAL]
    return usual_columns(names, name_limit=NAME_LIMIT)


def _show(options: argparse.Namespace) -> int:
    with Connection() as link:
        if options.watch:
            from pliant.client.terminal.alternate_screen import watch

            with _Frames(link, options) as frames:
                return watch(frames.next, options.every)
        # The garbage collector would visit the values of 50,000 jobs again and again, which took a
        # seventh of the time. There are no cycles among them.
        gc.disable()
        try:
            missing = _put_objects(link, options) if options.json else _put_table(link, options)
        finally:
            gc.enable()
    for number in missing:
        print_error(PROG, f"there is no job {number}")
    return 1 if missing else 0


def _request(
    link: Connection, options: argparse.Namespace, fields: Sequence[str] | None
) -> dict[str, Any]:
    """Ask the server for the jobs that the options select, and return the answer.

    ``fields`` are the values to get of each job; None for all.
    """
    every = bool(options.all or options.ids or options.json or names_ended_jobs(options))
    selected = selection_fields(options)
    if options.ids and selected:
        raise UsageError("name jobs by their numbers, or select them by options, not both")
    answer = link.request(
        "jobs", ids=options.ids or None, all=every, fields=fields, by_column=True, **selected
    )
    if not answer.get("complete", True):
        print_error(PROG, "there are more jobs than one answer holds: the newest are shown")
    return answer


def _put_objects(link: Connection, options: argparse.Namespace) -> list[int | str]:
    """Print the jobs as JSON; return those of the user's ids that the server does not know."""
    answer = _request(link, options, None)
    now = answer.get("now", time.time())
    print_json([with_keys_first(with_profit(job, now), FIELDS) for job in answer["jobs"]])
    return unknown_jobs(answer, options.ids)


def _put_table(link: Connection, options: argparse.Namespace) -> list[int | str]:
    """Print the jobs as a table; return those of the user's ids that the server does not know."""
    blocks, now, missing = _blocks(link, options)
    if blocks or not options.ids:
        print_text(_table(blocks, now, options))
    return missing


def _blocks(
    link: Connection, options: argparse.Namespace
) -> tuple[list[JobBlock], float, list[int | str]]:
    """Return the jobs to list, the server's time, and those of the user's ids that are unknown.

    The jobs come in blocks, each a part of the list, stored by columns.
    """
    shown = _shown(options)
    fields = fields_of(shown)
    answer = _request(link, options, fields)
    blocks = blocks_of(answer, fields)
    if any(column.name == "starts" for column in shown):
        starts = link.request("starts")["starts"]
        for block in blocks:
            expected = [starts.get(str(job)) for job in block.column("id")]
            block.values[EXPECTED_START] = expected
    return blocks, answer.get("now", time.time()), unknown_jobs(answer, options.ids)


def _table(blocks: list[JobBlock], now: float, options: argparse.Namespace) -> str:
    text = jobs_table(
        blocks, now, _shown(options), every=bool(options.format), heads=not options.no_header
    )
    if not options.narrow:
        return text
    return "\n".join(shorten(line, terminal_columns()) for line in text.splitlines())


class _Frames:
    """Makes the text that ``jobstat --watch`` shows; asks the server only after a change."""

    def __init__(self, link: Connection, options: argparse.Namespace) -> None:
        self._link, self._options = link, options
        self._signal = ChangeSignal(link.directory)
        self._blocks: list[JobBlock] | None = None
        self._now = self._asked = 0.0

    def __enter__(self) -> _Frames:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection with the subscription to changes."""
        self._signal.close()

    def next(self) -> str:
        """Return the present jobs as text.

        Raises:
            ClientError: this is the first call, and some of the named jobs are unknown.
        """
        if self._signal.take() or self._blocks is None:
            self._blocks = None  # so that a failed request is repeated
            self._blocks, self._now, missing = _blocks(self._link, self._options)
            if missing and not self._asked:
                raise ClientError("\n".join(f"there is no job {number}" for number in missing))
            self._asked = time.monotonic()
        now = self._now + time.monotonic() - self._asked
        states = [state for block in self._blocks for state in block.column("state")]
        head = f"{format_time(now, now)}  {summary(states)}"
        return f"{head}\n\n{_table(self._blocks, now, self._options)}"


def summary(states: Sequence[str]) -> str:
    """Return how many jobs are in each state: ``3 jobs: 2 RUNNING, 1 PENDING``."""
    counts: dict[str, int] = {}
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    parts = ", ".join(f"{count} {state}" for state, count in counts.items())
    total = f"{len(states)} job{'' if len(states) == 1 else 's'}"
    return total + (f": {parts}" if parts else "")


if __name__ == "__main__":
    sys.exit(main())

"""``pliant gantt``: draw which job held how many processors when."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.listing.selection import moment_before
from pliant.client.terminal.number_arguments import job_number
from pliant.client.terminal.output import Parser, check_writable, run_command

if TYPE_CHECKING:
    from pliant.charts.timeline import Timeline

PROG = "pliant gantt"

_EPILOG = """\
TIME: a span before now such as 90s, 12h or 7d, or 2026-12-24T16:30; 2026-12-24 is the beginning
of that day. In a simulation, a span since its beginning
exit codes: 0 done, 1 the server or the file cannot be used, 2 wrong usage, 3 no server"""


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the numbers of processors that jobs held over time; return the exit code."""
    options = _parser().parse_args(argv)
    return run_command(PROG, lambda: _draw(options))


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        description="Draw which job held how many processors when: a band for each job, stacked. "
        "Above 60 jobs at once, an area for each user.",
        epilog=_EPILOG,
    )
    parser.add_argument("ids", nargs="*", type=job_number, metavar="id", help="only these jobs")
    parser.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help="where the picture goes: a name that ends with .svg or .png (SVG to stdout)",
    )
    parser.add_argument("--since", type=_time, metavar="TIME", help="the time from then on (1d)")
    parser.add_argument("--until", type=_time, metavar="TIME", help="until then (now)")
    parser.add_argument(
        "--result",
        metavar="FILE",
        help="draw recorded events instead: what `pliant simulate --events-out` or "
        "`pliant history --json` wrote",
    )
    parser.add_argument(
        "--view",
        choices=("stacked", "processors"),
        default="stacked",
        help="jobs on each other, or a row for each processor (%(default)s)",
    )
    parser.add_argument(
        "--theme",
        choices=("auto", "light", "dark"),
        default="auto",
        help="colours; auto follows the system of the reader (%(default)s)",
    )
    parser.add_argument("--title", metavar="TEXT", help="the line above the picture")
    return parser


def _time(text: str) -> tuple[str, float]:
    """Return a time as it was typed, and in seconds since the epoch."""
    return text, moment_before(text)


def _check_kind(path: str) -> None:
    """Check that a picture's file name has a known suffix; devices and pipes get an SVG.

    Raises:
        UsageError: the name ends with neither ``.svg`` nor ``.png``.
    """
    special = os.path.exists(path) and not os.path.isfile(path)
    if not (special or path.lower().endswith((".svg", ".png"))):
        raise UsageError(f"-o {path}: pictures are SVG or PNG; end the name with .svg or .png")


def _draw(options: argparse.Namespace) -> int:
    from pliant.charts.layout import SHORTEST_S
    from pliant.charts.output.files import encoded, missing_for
    from pliant.charts.timeline import draw_timeline

    if options.output != "-":
        _check_kind(options.output)
        check_writable(options.output)
    if (missing := missing_for(options.output)) is not None:
        raise ClientError(f"-o {options.output}: {missing}")
    timeline = _recorded(options) if options.result is not None else _live(options)
    is_empty = timeline.window.end - timeline.window.start < 2 * SHORTEST_S
    if is_empty and (options.since or options.until):
        raise UsageError("--since: must be before --until and before the end of the recording")
    _check_rows(timeline)
    picture = encoded(draw_timeline(timeline), options.output, options.theme)
    if options.output == "-":
        sys.stdout.write(picture.decode())
    else:
        with open(options.output, "wb") as file:
            file.write(picture)
    return 0


def _live(options: argparse.Namespace) -> Timeline:
    from pliant.client.gantt.live_timeline import live_timeline

    return live_timeline(
        options.ids,
        since=options.since and options.since[1],
        until=options.until and options.until[1],
        by_processor=options.view == "processors",
        title=options.title,
    )


def _recorded(options: argparse.Namespace) -> Timeline:
    from pliant.client.gantt.recorded_timeline import recorded_timeline

    return recorded_timeline(
        options.result,
        options.ids,
        since=options.since,
        until=options.until,
        by_processor=options.view == "processors",
        title=options.title,
    )


def _check_rows(timeline: Timeline) -> None:
    from pliant.charts.processor_gantt import MAX_LANES

    if timeline.lanes is not None and timeline.lanes.rows > MAX_LANES:
        raise ClientError(
            f"--view processors: {timeline.lanes.rows:,} processors are too many rows, the limit "
            f"is {MAX_LANES}; use --view stacked"
        )


if __name__ == "__main__":
    sys.exit(main())

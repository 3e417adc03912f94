"""``pliant gantt``: draw which job held which processors when."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Sequence

from pliant.client.connection import Connection
from pliant.client.terminal.number_arguments import job_number
from pliant.client.terminal.output import Parser, check_writable, print_error, run_command

PROG = "pliant gantt"


def main(argv: Sequence[str] | None = None) -> int:
    """Draw which job held which processors when, as SVG."""
    parser = Parser(prog=PROG, description="Draw which job held which processors when, as SVG.")
    parser.add_argument("ids", nargs="*", type=job_number, metavar="id", help="only these jobs")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="a file (stdout)")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _draw(options))


def _draw(options: argparse.Namespace) -> int:
    from pliant.client.terminal.gantt import gantt_svg

    if options.output != "-":
        check_writable(options.output)
    with Connection() as link:
        jobs = link.request("jobs", ids=options.ids or None, all=True)["jobs"]
        known = {job["id"] for job in jobs}
        if missing := [number for number in options.ids if number not in known]:
            for number in missing:
                print_error(PROG, f"there is no job {number}")
            return 1
        events = link.request("history", id=None)["events"]
        nodes = link.request("nodes")["nodes"]
    if options.ids:
        events = [event for event in events if event.get("job") in options.ids]
    picture = gantt_svg(events, nodes, names={job["id"]: job["name"] for job in jobs})
    if options.output == "-":
        sys.stdout.write(picture)
    else:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(picture)
    return 0

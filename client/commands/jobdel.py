"""``jobdel``: cancel jobs."""

from __future__ import annotations

import pliant.client.terminal.quick_startup
import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial

from pliant.client.client_errors import UsageError
from pliant.client.connection import Connection
from pliant.client.listing.selection import (
    add_selection_options,
    names_ended_jobs,
    selection_fields,
)
from pliant.client.server_socket import UNLIMITED
from pliant.client.terminal.number_arguments import job_names
from pliant.client.terminal.output import (
    Parser,
    hint_for_slurm_option,
    print_error,
    print_json,
    run_command,
)

PROG = "jobdel"
_IDS = "the number of a job, or tasks of an array: 17, 17_3, 17_[5-10]"


def main(argv: Sequence[str] | None = None) -> int:
    """Cancel jobs; return the exit code, 1 if a request failed."""
    options = _parser().parse_args(argv)
    return run_command(PROG, lambda: _cancel(options))


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        hints=partial(hint_for_slurm_option, PROG),
        description="Cancel jobs: waiting ones leave the queue, the processes of others are ended.",
        epilog="With --name and --state, only your own jobs are cancelled. Operators name another\n"
        "user with --user.\n"
        "exit codes: 0 all were cancelled, 1 some were not (they had ended, or are not yours),\n"
        "2 wrong usage, 3 no server",
    )
    parser.add_argument("ids", nargs="*", type=job_names, metavar="id", help=_IDS)
    add_selection_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _cancel(options: argparse.Namespace) -> int:
    selected = selection_fields(options)
    if bool(options.ids) == bool(selected):
        raise UsageError(
            "name jobs by their numbers, or select them by --user, --me, --state or --name"
        )
    if names_ended_jobs(options):
        raise UsageError("--state: jobs that have ended cannot be cancelled; name another state")
    with Connection() as link:
        fields = selected or {"ids": options.ids}
        limit_s = UNLIMITED if selected else None
        results = link.request("cancel", limit_s=limit_s, **fields)["results"]
    if selected and not options.json:
        done = sum(bool(result.get("ok")) for result in results)
        print(f"{done} job{'' if done == 1 else 's'} cancelled")
    if options.json:
        print_json(results)
    for result in results:
        if not result.get("ok"):
            error = result.get("error") or "not cancelled"
            text = error.get("message") if isinstance(error, dict) else error
            name = f"job {result.get('id')}"
            is_named = re.search(rf"{re.escape(name)}\b", str(text))
            print_error(PROG, str(text) if is_named else f"{name}: {text}")
    return 0 if all(result.get("ok") for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())

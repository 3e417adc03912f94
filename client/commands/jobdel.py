"""``jobdel``: cancel jobs."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import sys
from collections.abc import Sequence

from pliant.client.connection import Connection
from pliant.client.terminal.number_arguments import job_number
from pliant.client.terminal.output import Parser, print_error, print_json, run_command

PROG = "jobdel"


def main(argv: Sequence[str] | None = None) -> int:
    """Cancel jobs; return the exit code, 1 if a request failed."""
    parser = Parser(
        prog=PROG,
        description="Cancel jobs: waiting ones leave the queue, the processes of others are ended.",
        epilog="exit codes: 0 all were cancelled, 1 some were not (they had ended, or are not "
        "yours), 2 wrong usage, 3 no server",
    )
    parser.add_argument("ids", nargs="+", type=job_number, metavar="id", help="the number of a job")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _cancel(options.ids, options.json))


def _cancel(ids: list[int], as_json: bool) -> int:
    with Connection() as link:
        results = link.request("cancel", ids=ids)["results"]
    if as_json:
        print_json(results)
    for result in results:
        if not result.get("ok"):
            error = result.get("error") or "not cancelled"
            text = error.get("message") if isinstance(error, dict) else error
            print_error(PROG, f"job {result.get('id')}: {text}")
    return 0 if all(result.get("ok") for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())

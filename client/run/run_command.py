"""``pliant run``: a step inside a job; outside of one, a job whose output comes to the terminal."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import os
import sys
from collections.abc import Sequence

from pliant.client.client_errors import UsageError
from pliant.client.submission.file_checks import current_umask
from pliant.client.terminal.number_arguments import bounded_int
from pliant.client.terminal.output import Parser, print_error, run_command

PROG = "pliant run"

_DESCRIPTION = """\
In a script: run a program on processors of the job, with one rank on each. It waits for free
processors, uses the input and outputs of this command, gets its signals, and gives it its exit
code. Several steps may run side by side.

Outside of a job: submit a job that has the input and outputs of this command, and exit with its
code. Ctrl-C cancels the job. With --pty, the program runs on a terminal, and gets all keys. All
options of jobsub about the job and its nodes are known, too: see `jobsub --help`.
"""

_EPILOG = """\
exit codes: the program's own, 128 + the signal when a signal ended it; 1 the step was refused,
2 wrong usage, 3 no server

  pliant run --pty bash              a shell on a node
  pliant run --pty -n 8 --type script bash
                                     a shell that has eight processors for steps
  pliant run -n 4 ./solver &         in a script: two steps side by side
  pliant run -n 4 ./other
  wait
  pliant run --size 2-8 ./heat       a malleable step, which uses what other steps leave free
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a program in this job, or as a new one that is waited for; return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    return run_command(PROG, lambda: _run(words))


def _run(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"]) or os.environ.get("PLIANT_JOB"):
        return _run_step(_step_parser().parse_args(words))
    from pliant.client.run.interactive import run_interactively

    return run_interactively(words)


def _step_parser() -> Parser:
    parser = Parser(
        prog=PROG,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        usage="%(prog)s [-n K | --size A-B] program [arguments...]",
    )
    how_many = parser.add_mutually_exclusive_group()
    how_many.add_argument(
        "-n",
        "--sizes",
        type=bounded_int(1, 1_000_000),
        default=0,
        metavar="K",
        help="ranks (all processors)",
    )
    how_many.add_argument(
        "--size",
        default="",
        metavar="A-B",
        help="ranks of a malleable program, as 2-8, which change while it runs",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _run_step(options: argparse.Namespace) -> int:
    from pliant.client.run.step import run_step

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UsageError("no program: name one, with its arguments")
    path = os.environ.get("PLIANT_STEP_SOCKET")
    if not path:
        raise UsageError(
            f"job {os.environ.get('PLIANT_JOB')} cannot start steps here: they are started by the "
            "script of a job (jobsub -n N job.sh)"
        )
    umask = current_umask()
    end = run_step(path, options.sizes, command, umask, sizes=_checked(options.size))
    if end.reason:
        print_error(PROG, end.reason)
    return end.exit_code


def _checked(text: str) -> str:
    """Check the value of --size and return it.

    Raises:
        UsageError: the text is not a list of sizes such as ``4`` or ``1-8:pow2``.
    """
    if text:
        from pliant.core.values.sizes import SizesError, parse_sizes

        try:
            parse_sizes(text)
        except SizesError as error:
            raise UsageError(f"--size: {error}") from None
    return text


if __name__ == "__main__":
    sys.exit(main())

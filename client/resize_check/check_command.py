"""``pliant check``: find out whether a program gives the same result when it is resized."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence

from pliant.client.client_errors import UsageError
from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import ClusterSpec
from pliant.client.cluster.local_cluster import LocalCluster
from pliant.client.cluster.shutdown import stop
from pliant.client.resize_check.compare import ProgramRun, failed_run, find_problems, lost_variables
from pliant.client.resize_check.runs import ProgramRunner, run_all
from pliant.client.terminal import number_arguments
from pliant.client.terminal.interrupts import Interrupted, Interrupts
from pliant.client.terminal.output import INTERRUPTED, Parser, print_error, print_text, run_command
from pliant.core.support.plural import plural

PROG = "pliant check"
_NODES = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Compare a malleable program that is resized with an undisturbed run of it."""
    parser = Parser(
        prog=PROG,
        description="Run a malleable program on a small private cluster, grow and shrink it at its "
        "first safe points, and compare its output and exit code with undisturbed runs. What "
        "already differs between two undisturbed runs, such as a time, is not compared.",
        epilog="exit codes: 0 no difference, 1 a difference, or it could not be resized, "
        "2 wrong usage, 130 Ctrl-C",
    )
    parser.add_argument(
        "--sizes",
        default="2-4",
        metavar="SMALL-LARGE",
        help="the processes that it runs on, both among the program's sizes (%(default)s)",
    )
    parser.add_argument(
        "--tolerance",
        type=number_arguments.tolerance,
        default=1e-6,
        metavar="X",
        help="relative difference of numbers in the output that is accepted (%(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=number_arguments.seconds,
        default=300.0,
        metavar="S",
        help="seconds for each run (%(default)s)",
    )
    parser.add_argument("program", help="a Python program")
    arguments = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    arguments.required = False  # a message about a missing program must not ask for them, too
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    small, large = _two_sizes(options.sizes)
    if not os.path.isfile(options.program):
        raise UsageError(f"program: {options.program} is not a file")
    directory = tempfile.mkdtemp(prefix="pliant-check-")
    cluster = LocalCluster(os.path.join(directory, "state"), os.path.join(directory, "run"))
    process_table.adopt_orphans()
    with Interrupts() as interrupts:
        try:
            with interrupts.shielded():
                slots = -(-large // _NODES)
                cluster.configure(ClusterSpec(_NODES, slots, strategy="fcfs"))
                cluster.start_missing()
            cluster.wait_up(lambda _: None)
            runner = ProgramRunner(cluster.run, directory, options.timeout)
            words = [os.path.abspath(options.program), *options.arguments]
            runs = run_all(runner, words, small, large)
        except Interrupted:
            print("interrupted: taking everything down", file=sys.stderr)
        finally:
            interrupts.ignore()
            stop(cluster, lambda _: None)
            process_table.terminate(
                process_table.find(
                    lambda pid: directory in process_table.environment(pid).values()
                ),
                1.0,
            )
            shutil.rmtree(directory, ignore_errors=True)
        if interrupts.number:
            return INTERRUPTED
    return _report(options, runs)


def _two_sizes(text: str) -> tuple[int, int]:
    small, _, large = text.partition("-")
    if not all(
        word.isascii() and word.isdigit() and 0 < int(word) <= 64 for word in (small, large)
    ):
        raise UsageError(f"--sizes {text}: write two numbers from 1 to 64, as in 2-4")
    if int(small) >= int(large):
        raise UsageError(f"--sizes {text}: the first number must be smaller than the second one")
    return int(small), int(large)


def _report(options: argparse.Namespace, runs: list[ProgramRun]) -> int:
    for run in runs:
        print_text(f"{run.what}: {run.ending}")
    with open(options.program, encoding="utf-8", errors="replace") as file:
        for line, name in lost_variables(file.read()):
            print_text(
                f"note: {options.program}:{line}: {name!r} is set in the first iteration only; a "
                "joining rank does not have it: set it before the loop, or keep it in job.state"
            )
    if len(runs) < 3:
        print_text(f"FAILED {failed_run(runs[-1])}")
        print_error(PROG, "the program fails without a resize, so that there is nothing to compare")
        return 1
    found = find_problems((runs[0], runs[1]), runs[2], options.tolerance)
    for problem in found:
        print_text(f"FAILED {problem}")
    if found:
        print_error(
            PROG,
            f"the resized run is not as the undisturbed one ({plural(len(found), 'difference')})",
        )
        return 1
    print_text("ok: the same output and exit code with and without resizes")
    return 0

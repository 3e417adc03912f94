"""``jobsub``: submit a job."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from pliant.client.client_errors import UsageError
from pliant.client.connection import Connection
from pliant.client.submission.build_job import build_job
from pliant.client.submission.file_checks import output_path
from pliant.client.submission.option_checks import (
    BIND,
    GROW_IF,
    OPEN_MODES,
    TYPES,
    check_policy,
    check_speedup,
)
from pliant.client.terminal.number_arguments import array_tasks, priority_number
from pliant.client.terminal.output import Parser, print_error, print_json, run_command
from pliant.client.waiting import send_job, wait_for_end

PROG = "jobsub"

_DESCRIPTION = """\
Submit a job and print its id.

A relative program is looked for here, one without a slash in the PATH of the select_environment
environment. The job runs in this directory and with this environment, or with what --chdir and
--export say. Without a program, or with `-`, a script is read from standard input.

Options count in this order: the command line, lines `#JOB OPTIONS` at the head of the script, the
lines of ~/.config/pliant/jobsub, those of /etc/pliant/jobsub, and the defaults.
"""

_EPILOG = """\
sizes: 4   2-16   1-64:pow2   4-64:x2   3-30:+3   {1,2,4,6,12}
in file names: %j (or %A) is the job's id, %x its name, %u its user; %N is the name of each node
and %n its place among the nodes of the job, from 0: then each node has files of its own;
of an array, %A is its id and %a the number of each task
exit codes: 0 done, 1 the request failed, 2 wrong usage, 3 no server; with --wait the job's own,
128 + the signal when a signal ended it; with --query 0 accepted, 1 not accepted or not known

  jobsub -n 4 python app.py          a job of 4 processors
  jobsub -n 1-8 --prefer 4 ./solver  one that may change its size
  jobsub --wait run.sh               a script, until it has ended
  jobsub < run.sh                    the same script, as it is now
  jobsub --wrap 'make && ./test'     a command of the shell
  jobsub --array 1-100%10 ./task.sh  a hundred tasks, at most ten at once
  jobsub --dependency afterok:17 x   when job 17 has ended without an error
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Submit a job, or ask whether it would be accepted; return the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)

    def submit() -> int:
        from pliant.client.submission.directives import parse_with_directives

        return _submit(parse_with_directives(words, make_parser))

    return run_command(PROG, submit)


def make_parser(kind: type[Parser] = Parser) -> Parser:
    """Return the parser of the command line and of the directives in scripts."""
    parser = kind(
        prog=PROG,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        usage="%(prog)s [options] program [arguments...]",
        hints=_hint,
    )
    _add_size_options(parser)
    _add_condition_options(parser)
    _add_node_options(parser)
    _add_place_options(parser)
    _add_answer_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _add_size_options(parser: Parser) -> None:
    group = parser.add_argument_group("the job")
    group.add_argument("-n", "--sizes", default="1", help="processors it can use (default 1)")
    group.add_argument("--prefer", type=_size, metavar="N", help="the size it runs best on")
    group.add_argument(
        "--type",
        choices=TYPES,
        help="mpi (default), uni: one process, script (default for *.sh): it runs on the first of "
        "its processors",
    )
    group.add_argument("--name", default="", help="its name (default: the program's)")
    group.add_argument(
        "--time", type=_span, metavar="T", help="end it after this time, by the clock: 30m, 2h"
    )
    group.add_argument(
        "--estimate",
        type=_span,
        metavar="T",
        help="its expected run time at its preferred size, or else at its smallest: for planning "
        "only, unless the strategy promises start times that are based on estimates",
    )
    group.add_argument(
        "--speedup",
        type=_speedup,
        default="linear",
        metavar="MODEL",
        help="how the estimate changes with the size: linear (default), none, amdahl:FRACTION (of "
        "the work that is parallel, from 0 to 1), downey:AVERAGE,SIGMA, table:1=1,2=1.9,...",
    )
    group.add_argument(
        "--deadline",
        type=_moment,
        metavar="T",
        help="when it must have ended, from now or by the clock: 2h, 16:30, 2026-12-24T16:30",
    )
    group.add_argument(
        "--profit",
        default="",
        metavar="P",
        help="what its end in time is worth: 1000, 1000:soft=0.25:penalty=50 (needs --deadline)",
    )
    group.add_argument(
        "--requeue",
        action=argparse.BooleanOptionalAction,
        help="whether it is started again when a node is lost under it, from its last checkpoint "
        "or from the start (default: if it can change its size and has a checkpoint)",
    )
    group.add_argument(
        "--when-cut-off",
        default="keep",
        type=_policy,
        metavar="WHAT",
        help="on a node that has lost the server its processes keep on (default), or "
        "stop-after=TIME: 30 (seconds), 5m",
    )
    group.add_argument(
        "--grow-if",
        choices=GROW_IF,
        help="take an offer of growth if it gains more time than the move costs, by what the "
        "program has measured, or always (default: as the server's configuration says, gain)",
    )
    group.add_argument(
        "--priority",
        type=priority_number,
        default=0,
        metavar="N",
        help="a whole number (default 0): under the strategies `priority...` higher ones go first",
    )
    group.add_argument(
        "--resource",
        action="append",
        metavar="NAME=N[/proc]",
        help="named resource of the cluster that it uses while it runs, such as a license: N for "
        "the job, or for each processor; repeated for more",
    )
    group.add_argument(
        "--account", default="", metavar="NAME", help="the account that it is charged to"
    )


def _add_condition_options(parser: Parser) -> None:
    group = parser.add_argument_group("when it runs")
    group.add_argument("--hold", action="store_true", help="do not start it before it is released")
    group.add_argument(
        "--begin",
        type=_begin,
        metavar="T",
        help="do not start it before this time: now+1hour, 16:00, 2026-12-24T08:00, tomorrow",
    )
    group.add_argument(
        "--dependency",
        default="",
        metavar="WHAT",
        help="wait for other jobs: after:17 (it has started), afterok:17:18 (they ended without an "
        "error), afternotok:17, afterany:17 (ended), singleton (earlier jobs of the same name); "
        "several with commas",
    )
    group.add_argument(
        "--signal",
        default="",
        metavar="SIGNAL@SECONDS",
        help="send a signal to its processes before its time limit: USR1@60 (needs --time)",
    )
    group.add_argument(
        "-a",
        "--array",
        type=array_tasks,
        metavar="TASKS",
        help="run the program once for each of these numbers, which PLIANT_ARRAY_TASK holds: "
        "1-1000, 1-9:2 (every second), 1,4,7-9, 1-1000%%50 (at most 50 at once)",
    )
    group.add_argument("--comment", default="", metavar="TEXT", help="a remark, for people")
    group.add_argument(
        "--wrap", default="", metavar="COMMAND", help="run a command of the shell, not a program"
    )


def _add_node_options(parser: Parser) -> None:
    group = parser.add_argument_group("its nodes")
    group.add_argument(
        "--components",
        type=_components,
        default=(),
        metavar="N,N,...",
        help="processors of each component: a component runs in one cluster, under strategies that "
        "place components (fpsma, egs); the job has their sum",
    )
    group.add_argument(
        "--mem-per-cpu",
        default="",
        metavar="SIZE",
        help="memory of each process, with a unit: 500M, 4G; it comes and goes with processors",
    )
    group.add_argument(
        "--gpus",
        "--gpus-per-task",
        type=_size,
        default=0,
        metavar="N",
        help="GPUs of each process",
    )
    group.add_argument(
        "--gres",
        action="append",
        metavar="NAME[:N]",
        help="another generic resource of each process; repeated for more",
    )
    group.add_argument(
        "-C",
        "--constraint",
        default="",
        metavar="PROPERTIES",
        help="run only on nodes with these properties: fast, fast&a100, a100|h100",
    )
    group.add_argument(
        "-w", "--nodelist", default="", metavar="NODES", help="run only on these: n[01-16],gpu3"
    )
    group.add_argument("-x", "--exclude", default="", metavar="NODES", help="do not run on these")


def _add_place_options(parser: Parser) -> None:
    group = parser.add_argument_group("where it runs")
    group.add_argument("-i", "--input", default="", metavar="FILE", help="standard input")
    group.add_argument(
        "-o", "--output", default="", metavar="FILE", help="standard output (pliant-%%j.out)"
    )
    group.add_argument(
        "-e", "--error", default="", metavar="FILE", help="standard error (with the output)"
    )
    group.add_argument(
        "--open-mode",
        choices=OPEN_MODES,
        default="truncate",
        help="empty existing output files when it starts (truncate, the default), or append to "
        "them; a job that is requeued or resized always appends",
    )
    group.add_argument(
        "--bind",
        choices=BIND,
        default="rank",
        help="rank: each rank runs on the CPUs of its own processor (default); node: the ranks on "
        "a node share the CPUs of all processors that the job has there; none: no limit",
    )
    group.add_argument(
        "--no-bind", dest="bind", action="store_const", const="none", help="the same as --bind none"
    )
    group.add_argument("--chdir", metavar="DIR", help="run there instead of here")
    group.add_argument(
        "--export",
        action="append",
        metavar="ALL|NONE|NAME|NAME=VALUE",
        help="its environment: all, none, only some, with one more set; commas or repeated",
    )


def _add_answer_options(parser: Parser) -> None:
    group = parser.add_argument_group("the answer")
    group.add_argument(
        "--query",
        "--test-only",
        action="store_true",
        help="submit nothing: say whether it would be accepted, when, on how many processors and "
        "at what price",
    )
    group.add_argument(
        "--what-if",
        default="",
        metavar="STRATEGY,...",
        help="submit nothing: simulate the present queue with this job under other strategies, "
        "next to the strategy in force (see `pliant what-if --help`)",
    )
    group.add_argument(
        "--bid",
        default="",
        metavar="SERVER,...",
        help="ask several servers, named by their run folders, and submit the job to the best one",
    )
    group.add_argument(
        "--bid-by",
        choices=("end", "price"),
        default="end",
        help="the best server is that with the earliest end (default), or with the lowest price",
    )
    group.add_argument("--wait", action="store_true", help="wait until it ends; exit with its code")
    group.add_argument("--parsable", action="store_true", help="print the id and nothing else")
    group.add_argument("--json", action="store_true", help="print JSON")


def _hint(option: str) -> str:
    from pliant.client.slurm_options import SUBMISSION

    return SUBMISSION.get(option, "")


def _size(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processors")
    return number


def _components(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"expected numbers of processors, as in 4,2, not {text!r}")
    return [int(word) for word in words]


def _policy(text: str) -> str:
    try:
        return check_policy(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def _speedup(text: str) -> str:
    try:
        return check_speedup(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _span(text: str) -> float:
    from pliant.client.terminal.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _moment(text: str) -> tuple[float | None, float | None]:
    import time

    from pliant.client.terminal.moments import parse_moment

    try:
        return parse_moment(text, time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _begin(text: str) -> tuple[float | None, float | None]:
    return (None, None) if text.strip().lower() == "now" else _moment(text)


def job_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the job that command-line options describe, in the form of a request."""
    deadline_s, deadline_at = options.deadline or (None, None)
    begin_s, begin_at = options.begin or (None, None)
    return build_job(
        options.command,
        sizes=options.sizes,
        prefer=options.prefer,
        type=options.type,
        name=options.name,
        stdin=options.input,
        stdout=options.output,
        stderr=options.error,
        open_mode=options.open_mode,
        bind=options.bind,
        chdir=options.chdir,
        env=_environment(options.export),
        hold=options.hold,
        requeue=options.requeue,
        when_cut_off=options.when_cut_off,
        time_limit_s=options.time,
        estimate_s=options.estimate,
        deadline_s=deadline_s,
        deadline_at=deadline_at,
        profit=options.profit,
        speedup=options.speedup,
        grow_if=options.grow_if,
        priority=options.priority,
        resources=options.resource or (),
        mem_per_cpu=options.mem_per_cpu,
        gpus=options.gpus,
        gres=options.gres or (),
        constraint=options.constraint,
        nodelist=options.nodelist,
        exclude=options.exclude,
        account=options.account,
        begin_s=begin_s,
        begin_at=begin_at,
        dependency=options.dependency,
        signal=options.signal,
        comment=options.comment,
        components=options.components,
        array=options.array or "",
        script=options.script,
    )


def _submit(options: argparse.Namespace) -> int:
    job = job_of(options)
    if options.query or options.what_if:
        from pliant.client.forecasts.submission_questions import answer_question

        return answer_question(options, job)
    bids: dict[str, Any] = {}
    run = None
    if options.bid:
        from pliant.client.forecasts.submission_questions import choose_server

        run, bids = choose_server(options, job)
    with Connection(run) as link:
        number = send_job(link, job)
        if not options.json:
            print(number)
        elif not options.wait:
            print_json({"id": number, **bids})
        if sys.stderr.isatty() and not (options.json or options.parsable):
            print(f"output goes to {output_path(job, number)}", file=sys.stderr)
        if not options.wait:
            return 0
        sys.stdout.flush()
        final = wait_for_end(link, number)
    if options.json:
        print_json(final)
    return report_end(final)


def _print_mpi_remedy(output: str) -> None:
    """Print what to install if a job found no MPI library; otherwise print nothing."""
    from pliant.client.cluster.mpi_library import REMEDY, library_was_missing

    if library_was_missing(output):
        print_error(PROG, f"it found no MPI library: {REMEDY}")


def _environment(choices: list[str] | None) -> dict[str, str] | None:
    if not choices:
        return None
    from pliant.client.submission.export_option import select_environment

    return select_environment(choices)


def report_end(job: dict[str, Any], prog: str = PROG) -> int:
    """Return the exit code for a job that has ended; if it failed, print how on stderr.

    Args:
        job: the job, as the server describes it.
        prog: the name of the command, with which the message begins.
    """
    state = str(job.get("state"))
    if state != "COMPLETED":
        reason = f": {job['reason']}" if job.get("reason") else ""
        print_error(prog, f"job {job.get('id')} ended {state}{reason}")
    if state == "FAILED" and job.get("type") == "mpi":
        _print_mpi_remedy(str(job.get("stdout") or ""))
    if job.get("signal"):
        return 128 + int(job["signal"])
    return int(job.get("exit_code") or 0) or (0 if state == "COMPLETED" else 1)


if __name__ == "__main__":
    sys.exit(main())

"""``jobsub``: submit a job."""

from __future__ import annotations

import pliant.client.terminal.quick_startup
import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from pliant.client.client_errors import UsageError
from pliant.client.connection import Connection
from pliant.client.reconnecting import send_job, wait_for_end
from pliant.client.submission.build_job import build_job
from pliant.client.submission.file_checks import output_path
from pliant.client.submission.help_texts import DESCRIPTION, EPILOG
from pliant.client.submission.jobsub_output_options import (
    add_answer_options,
    add_message_options,
    add_staging_options,
    print_number,
)
from pliant.client.submission.option_checks import (
    BIND,
    GROW_IF,
    OPEN_MODES,
    TYPES,
    policy_argument,
    speedup_argument,
)
from pliant.client.terminal.number_arguments import array_tasks, priority_number
from pliant.client.terminal.output import (
    Parser,
    hint_for_slurm_option,
    print_error,
    print_json,
    run_command,
)

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

PROG = "jobsub"


def main(argv: Sequence[str] | None = None) -> int:
    """Submit a job, or ask whether it would be accepted; return the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)

    def submit() -> int:
        from pliant.client.submission.directives import parse_with_directives

        return _submit(parse_with_directives(words, make_parser))

    return run_command(PROG, submit)


def make_parser(kind: type[Parser] = Parser) -> Parser:
    """Return a parser of class ``kind`` for the command line, or for directives in scripts."""
    parser = kind(
        prog=PROG,
        description=DESCRIPTION,
        epilog=EPILOG,
        usage="%(prog)s [options] program [arguments...]",
        hints=partial(hint_for_slurm_option, PROG),
    )
    _add_size_options(parser)
    _add_condition_options(parser)
    _add_node_options(parser)
    _add_place_options(parser)
    add_staging_options(parser)
    add_message_options(parser)
    add_answer_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _add_size_options(parser: Parser) -> None:
    group = parser.add_argument_group("the job")
    group.add_argument(
        "-n", "--sizes", default="1", help="numbers of processors that the job can use (default 1)"
    )
    group.add_argument(
        "--prefer",
        type=_size,
        metavar="N",
        help="the number of processors on which the job runs best",
    )
    group.add_argument(
        "--type",
        choices=TYPES,
        help="mpi (default): an MPI program; uni: one process; script (default for *.sh, *.bash, "
        "*.slurm, *.sbatch and *.job): a script "
        "that runs on the first processor of the job",
    )
    group.add_argument("--name", default="", help="name of the job (default: that of the program)")
    group.add_argument(
        "--time", type=_span, metavar="T", help="the server ends the job after this time: 30m, 2h"
    )
    group.add_argument(
        "--estimate",
        type=_span,
        metavar="T",
        help="expected run time of the job at its preferred size, or else at its smallest; only "
        "for planning, unless the strategy bases promises on estimates",
    )
    group.add_argument(
        "--speedup",
        type=speedup_argument,
        default="linear",
        metavar="MODEL",
        help="how the estimate changes with the size: linear (default), none, amdahl:FRACTION (of "
        "the work that is parallel, from 0 to 1), downey:AVERAGE,SIGMA, table:1=1,2=1.9,...",
    )
    group.add_argument(
        "--deadline",
        type=_moment,
        metavar="T",
        help="when the job must have ended, from now or by the clock: 2h, 16:30, 2026-12-24T16:30",
    )
    group.add_argument(
        "--profit",
        default="",
        metavar="P",
        help="what an end of the job in time is worth: 1000, 1000:soft=0.25:penalty=50 (needs "
        "--deadline)",
    )
    _add_policy_options(group)


def _add_policy_options(group: argparse._ArgumentGroup) -> None:
    """Add the options about failures, growth, priority and accounting of a job."""
    group.add_argument(
        "--requeue",
        action=argparse.BooleanOptionalAction,
        help="whether the job starts again after the loss of a node, from its last checkpoint or "
        "from the beginning (default: if it can change its size and has a checkpoint)",
    )
    group.add_argument(
        "--when-cut-off",
        default="keep",
        type=policy_argument,
        metavar="WHAT",
        help="what processes of the job do on a node that has lost the server: keep running "
        "(keep, the default), or end after a time (stop-after=30 in seconds, stop-after=5m)",
    )
    group.add_argument(
        "--grow-if",
        choices=GROW_IF,
        help="gain: the program accepts a growth only if it gains more time than the resize costs, "
        "by its own measurements; always: the program accepts every growth (default: the "
        "configuration of the server, which is gain unless changed)",
    )
    group.add_argument(
        "--priority",
        type=priority_number,
        default=0,
        metavar="N",
        help="a whole number (default 0); the strategies `priority...` start jobs with higher ones "
        "first",
    )
    group.add_argument(
        "--resource",
        action="append",
        metavar="NAME=N[/proc]",
        help="a named resource of the cluster that the job uses while it runs, such as a license: "
        "N for the job, or N for each processor; repeatable",
    )
    group.add_argument(
        "--account", default="", metavar="NAME", help="the account that is charged for the job"
    )


def _add_condition_options(parser: Parser) -> None:
    group = parser.add_argument_group("when it runs")
    group.add_argument(
        "--hold",
        action="store_true",
        help="keep the job from starting until it is released (jobctl release)",
    )
    group.add_argument(
        "--begin",
        type=_begin,
        metavar="T",
        help="keep the job from starting before this time: now+1hour, 16:00, 2026-12-24T08:00, "
        "tomorrow",
    )
    group.add_argument(
        "--dependency",
        default="",
        metavar="WHAT",
        help="wait for other jobs: after:17 (job 17 has started), afterok:17:18 (both ended "
        "without an error), afternotok:17 (job 17 failed), afterany:17 (job 17 has ended), "
        "singleton (earlier jobs of the same user and name have ended); several with commas",
    )
    group.add_argument(
        "--signal",
        default="",
        metavar="SIGNAL@SECONDS",
        help="send a signal to the processes of the job before its time limit: USR1@60 (needs "
        "--time)",
    )
    group.add_argument(
        "-a",
        "--array",
        type=array_tasks,
        metavar="TASKS",
        help="run the program once for each of these numbers, which PLIANT_ARRAY_TASK holds: "
        "1-1000, 1-9:2 (every second), 1,4,7-9, 1-1000%%50 (at most 50 at once)",
    )
    group.add_argument("--comment", default="", metavar="TEXT", help="a remark about the job")
    group.add_argument(
        "--wrap",
        default="",
        metavar="COMMAND",
        help="run a command line of the shell instead of a program",
    )


def _add_node_options(parser: Parser) -> None:
    group = parser.add_argument_group("its nodes")
    group.add_argument(
        "--components",
        type=_components,
        default=(),
        metavar="N,N,...",
        help="processors of each component of the job; strategies that place components (fpsma, "
        "egs) run each component in one cluster, and the job has the sum",
    )
    group.add_argument(
        "--mem-per-cpu",
        default="",
        metavar="SIZE",
        help="memory of each process, with a unit: 500M, 4G; a job that grows gets memory for its "
        "new processes, too",
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
        help="another generic resource of each process; repeatable",
    )
    group.add_argument(
        "-C",
        "--constraint",
        default="",
        metavar="PROPERTIES",
        help="run only on nodes with these properties: fast, fast&a100, a100|h100",
    )
    group.add_argument(
        "-w",
        "--nodelist",
        default="",
        metavar="NODES",
        help="run only on these nodes: n[01-16],gpu3",
    )
    group.add_argument(
        "-x", "--exclude", default="", metavar="NODES", help="do not run on these nodes"
    )


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
        help="truncate (default): the job empties existing output files when it starts; append: "
        "the job appends to them, as a requeued or resized job always does",
    )
    group.add_argument(
        "--record-load",
        type=_interval,
        metavar="INTERVAL",
        help="record processor time, memory, major page faults and I/O of the job on each node in "
        "a file next to the output (pliant-%%j.load-NODE.csv), with a row each INTERVAL, from 10ms "
        "to 60s",
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
    group.add_argument(
        "--chdir", metavar="DIR", help="directory of the job (default: this directory)"
    )
    group.add_argument(
        "--export",
        action="append",
        metavar="ALL|NONE|NAME|NAME=VALUE",
        help="environment of the job: all variables, none, only those that are named, or with one "
        "more that is set; several with commas, repeatable",
    )


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


def _span(text: str) -> float:
    from pliant.client.terminal.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _interval(text: str) -> float:
    from pliant.client.submission.option_checks import check_record_load
    from pliant.client.terminal.durations import parse_interval

    try:
        return check_record_load(parse_interval(text))["record_load_s"]
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _moment(text: str) -> tuple[float | None, float | None]:
    import time

    from pliant.client.terminal.time_arguments import parse_moment

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
        record_load_s=options.record_load,
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
        notify=options.notify,
        notify_on=options.notify_on,
        components=options.components,
        array=options.array or "",
        script=options.script,
    )


def _submit(options: argparse.Namespace) -> int:
    job = job_of(options)
    if options.query or options.what_if:
        from pliant.client.forecasts.jobsub_queries import answer_question

        return answer_question(options, job)
    bids: dict[str, Any] = {}
    run = None
    if options.bid:
        from pliant.client.forecasts.jobsub_queries import choose_server

        run, bids = choose_server(options, job)
    with Connection(run) as link:
        if options.stage or options.stage_out:
            from pliant.client.staged_files import stage_job

            stage_job(link, job, options.stage, options.stage_out)
        number = send_job(link, job)
        if not options.json:
            print_number(number, lambda: print(number), PROG)
        elif not options.wait:
            print_number(number, lambda: print_json({"id": number, **bids}), PROG)
        if sys.stderr.isatty() and not (options.json or options.parsable):
            print(f"output goes to {output_path(job, number)}", file=sys.stderr)
        if not options.wait:
            return 0
        try:
            final = wait_for_end(link, number)
            if "stage" in job:
                from pliant.client.staged_files import fetch_outputs

                fetch_outputs(link, number)
        except KeyboardInterrupt:
            remedy = "" if options.bid else f"; cancel it with `jobdel {number}`"
            print_error(PROG, f"job {number} goes on{remedy}")
            raise
    if options.json:
        print_json(final)
    return report_end(final)


def _print_mpi_remedy(output: str) -> None:
    """Print what to install if the output file of a job says that no MPI library was found."""
    from pliant.client.cluster.mpi_library import REMEDY, library_was_missing

    if library_was_missing(output):
        print_error(PROG, f"it found no MPI library: {REMEDY}")


def _environment(choices: list[str] | None) -> dict[str, str] | None:
    if not choices:
        return None
    from pliant.client.submission.export_option import select_environment

    return select_environment(choices)


def report_end(job: dict[str, Any], prog: str = PROG) -> int:
    """Return the exit code for a job that has ended.

    If the job did not complete, print its final state and the reason on stderr.

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

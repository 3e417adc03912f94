"""``pliant what-if``: simulate the present queue under other strategies."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
from collections.abc import Sequence
from typing import Any

from pliant.client.client_errors import UsageError
from pliant.client.connection import Connection
from pliant.client.terminal.durations import parse_duration
from pliant.client.terminal.output import (
    Parser,
    name_and_value,
    print_json,
    print_text,
    run_command,
)

PROG = "pliant what-if"
#: Jobs that the table shows unless all are wanted.
_MAX_SHOWN = 40
#: For how long a job runs that states no time, in seconds.
ASSUMED_S = 3600.0


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate the present queue under other strategies and show the outcomes."""
    options = _parser().parse_args(argv)
    return run_command(PROG, lambda: _show(options))


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        description="Simulate the present queue and the running jobs under other strategies. The "
        "command\nshows when each job would start and end and which sizes it would have, next to "
        "the same\nforecast for the strategy in force. Nothing changes in the cluster.",
        epilog="Jobs run as long as they state (--estimate, --time). A waiting job with several "
        "sizes\ncounts as malleable. Resizes take no time. No other jobs arrive.\n"
        "change: the difference of the end to that under the strategy in force\n"
        "exit codes: 0 done, 1 a strategy cannot be simulated, 2 wrong usage, 3 no server",
    )
    parser.add_argument("strategies", nargs="+", metavar="strategy", help="a strategy to try")
    parser.add_argument(
        "-o",
        "--strategy-option",
        action="append",
        default=[],
        type=name_and_value,
        metavar="NAME=VALUE",
        help="an option of all named strategies; repeatable",
    )
    parser.add_argument(
        "--assume",
        type=_duration,
        default=ASSUMED_S,
        metavar="T",
        help="the run time of jobs that state neither an estimate nor a limit (1h)",
    )
    parser.add_argument("-a", "--all", action="store_true", help="show all jobs, not only the "
                        f"first {_MAX_SHOWN}")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _show(options: argparse.Namespace) -> int:
    chosen = dict(options.strategy_option)
    show_forecast(
        options.strategies,
        chosen,
        assume_s=options.assume,
        most=None if options.all else _MAX_SHOWN,
        as_json=options.json,
    )
    return 0


def show_forecast(
    strategies: Sequence[str],
    chosen: dict[str, object],
    job: dict[str, Any] | None = None,
    *,
    assume_s: float = ASSUMED_S,
    most: int | None = _MAX_SHOWN,
    as_json: bool = False,
) -> None:
    """Simulate the queue of the server under strategies, and print the comparison.

    Args:
        strategies: the strategies to compare with the one that the server uses.
        chosen: the options of these strategies.
        job: a job to add to the queue, in the form of a ``submit`` request; None for none.
        assume_s: the run time of jobs that state none, in seconds.
        most: the largest number of jobs to show; None for all.
        as_json: whether to print JSON.

    Raises:
        UsageError: the job cannot be simulated; the text names the option.
        ClientError: a strategy is unknown or cannot run these jobs.
        RequestError: the server refuses.
    """
    from pliant.client.forecasts.comparison_table import comparison_text
    from pliant.client.forecasts.simulated_queue import simulate_queue

    with Connection() as link:
        snapshot = link.request("snapshot")
    if job is not None:
        from pliant.client.forecasts.hypothetical_job import job_row

        snapshot["jobs"].insert(0, job_row(job, snapshot["now"]))
    if not snapshot["jobs"]:
        raise UsageError("no job runs or waits: there is nothing to simulate")
    in_force = (snapshot["strategy"], snapshot["options"])
    answer = simulate_queue(
        snapshot, [in_force, *((name, chosen) for name in strategies)], assume_s
    )
    if as_json:
        print_json({"now": snapshot["now"], **answer})
    else:
        print_text(comparison_text(snapshot, answer, most))

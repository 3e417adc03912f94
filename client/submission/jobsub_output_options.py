"""What ``jobsub`` prints, and its options about this and about messages to the user."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pliant.client.client_errors import ClientError
from pliant.client.terminal.output import Parser, discard_stdout, print_error


def add_message_options(parser: Parser) -> None:
    """Add the options about messages that the server sends on events of the job."""
    group = parser.add_argument_group("messages about it")
    group.add_argument(
        "--notify",
        default="",
        metavar="WHERE",
        help="tell this mail address or web service (https://host/path) about events of the job, "
        "if the configuration of the server allows it",
    )
    group.add_argument(
        "--notify-on",
        default="",
        metavar="EVENT,...",
        help="the events: start, end, fail, resize, limit (the time limit is near or reached), all "
        "(default: end,fail); with tasks, for each task of an array instead of once for the array",
    )


def add_answer_options(parser: Parser) -> None:
    """Add the options that control how the command uses the answer of the server."""
    group = parser.add_argument_group("the answer")
    group.add_argument(
        "--query",
        "--test-only",
        action="store_true",
        help="submit nothing: print whether the strategy would accept the job, when the job would "
        "start, on how many processors, and at what price",
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
    group.add_argument(
        "--wait", action="store_true", help="wait until the job ends, and exit with its code"
    )
    group.add_argument(
        "--parsable", action="store_true", help="print the id of the job and nothing else"
    )
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument(
        "--ignore-other-directives",
        action="store_true",
        help="submit a script although its options are in lines of another system (#SBATCH, #PBS, "
        "#BSUB), without these options",
    )


def print_number(number: int, write: Callable[[], None], prog: str) -> None:
    """Print the id of a submitted job; if this fails, the error names the id.

    Args:
        number: the id.
        write: the function that prints the id.
        prog: the name of the command.

    Raises:
        ClientError: stdout cannot be written.
        BrokenPipeError: the reader of the pipe has closed it.
    """
    try:
        write()
        sys.stdout.flush()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        lost = f"job {number} was submitted, but its id cannot be written: {why}"
        if isinstance(error, BrokenPipeError):
            print_error(prog, lost)
            raise
        discard_stdout()
        raise ClientError(lost) from None


def add_staging_options(parser: Parser) -> None:
    """Add the options about files that are sent to the nodes."""
    group = parser.add_argument_group("files for nodes that do not share its directory")
    group.add_argument(
        "--stage",
        action="append",
        default=[],
        metavar="PATH[,PATH...]",
        help="send these files and folders of the job's directory to its nodes; the job runs in "
        "a private folder there, and new and changed files come back",
    )
    group.add_argument(
        "--stage-out",
        action="append",
        default=[],
        metavar="PATTERN[,...]",
        help="with --stage: only files whose names match come back, such as '*.dat'",
    )

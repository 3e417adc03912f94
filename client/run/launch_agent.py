"""``pliant-launch-agent``: start a command on another host of the job, as ``ssh`` would.

The launchers of MPI libraries start their daemons with a program that they call like ``ssh``. In
the script of a job, an environment variable makes them use this program. The daemons then start
through the controllers of the job's nodes, and end with the job.
"""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from pliant.client.client_errors import UsageError
from pliant.client.submission.file_checks import current_umask
from pliant.client.terminal.output import Parser, print_error, run_command

PROG = "pliant-launch-agent"

_DESCRIPTION = """\
Run a shell command on a host of this job. MPI launchers, such as mpiexec, call this command in
scripts instead of ssh, with the options and arguments of ssh. The options are ignored.
"""

_EPILOG = """\
exit codes: the command's own, 128 + the signal when a signal ended it; 1 the job has no such host,
2 wrong usage

  pliant-launch-agent 10.0.0.12 uptime     in a script with several nodes
"""

#: Options of ``ssh`` that are followed by a value.
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command on a host of this job; return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    return run_command(PROG, lambda: _run(words))


def _run(words: list[str]) -> int:
    from pliant.client.run.step import run_on_host

    if words in (["-h"], ["--help"]):
        make_parser().parse_args(words)
    host, command = split(words)
    path = os.environ.get("PLIANT_STEP_SOCKET")
    if not path:
        raise UsageError("this works only in the script of a job (jobsub -n N job.sh)")
    hosts = [host] if _is_listed(host) else [host, *_addresses(host)]
    end = run_on_host(path, hosts, command, current_umask())
    if end.reason:
        print_error(PROG, end.reason)
    return end.exit_code


def make_parser() -> Parser:
    """Return the parser that prints the help; the words of ``ssh`` are read by `split`."""
    parser = Parser(
        prog=PROG,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        usage="%(prog)s [options of ssh] host command...",
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def split(words: Sequence[str]) -> tuple[str, str]:
    """Return the host and the shell command in the words of a call of ``ssh``.

    Options may stand before and after the host. The words of the command are joined by spaces, as
    ``ssh`` does.

    Raises:
        UsageError: there is no host or no command.
    """
    rest = _without_options(words)
    if not rest:
        raise UsageError("no host: name a host of this job, and a command")
    host, *rest = rest
    rest = _without_options(rest)
    if not rest:
        raise UsageError("no command: a terminal on the host is not available")
    return host.rpartition("@")[2], " ".join(rest)


def _without_options(words: Sequence[str]) -> list[str]:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if len(option) == 2 and option[1] in _WITH_VALUE and rest:
            del rest[0]
    return rest


def _is_listed(host: str) -> bool:
    """Return whether the list of the job's nodes contains exactly the name ``host``."""
    try:
        lines = Path(os.environ.get("PLIANT_NODE_LIST", "")).read_text().split()
    except OSError:
        return False
    return any(line.rpartition(":")[0] == host for line in lines)


def _addresses(host: str) -> list[str]:
    """Return the addresses of a host; empty if its name is unknown here."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(entry[4][0]) for entry in found]


if __name__ == "__main__":
    sys.exit(main())

"""A job that is waited for: its output is shown while it runs, and Ctrl-C cancels it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
import tempfile
import termios
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any, BinaryIO

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.commands.jobsub import job_of, make_parser, report_end
from pliant.client.connection import Connection
from pliant.client.reconnecting import send_job, wait_for_end
from pliant.client.submission.directives import parse_with_directives
from pliant.client.terminal.interrupts import Interrupted, Interrupts
from pliant.client.terminal.output import Parser, print_error

PROG = "pliant run"

#: Seconds between two looks at the output files.
_INTERVAL_S = 0.05

_CHUNK = 1 << 20

_NOT_PASSED_ON = """\
standard input is not passed on to the job, because it is not a file
(write it to a file: `pliant run PROGRAM < FILE`, or `jobsub -i FILE PROGRAM`)"""

#: Options of ``jobsub`` that ``pliant run`` does not have, with the reason.
_SHOWN = "it shows the output of the job on its own outputs"
_REFUSED = {
    "input": "the job reads the standard input of `pliant run`, if that is a file",
    "output": _SHOWN,
    "error": _SHOWN,
    "record_load": "the record would be removed with the output; submit the job with `jobsub`",
    "hold": "it waits for the end of the job, and a held job does not start",
    "query": "it submits the job; ask with `jobsub --query`",
    "wait": "it always waits for the end of the job",
    "parsable": _SHOWN,
    "json": _SHOWN,
}


def run_interactively(words: list[str]) -> int:
    """Submit a job, show its output, and return its exit code when it has ended.

    Its output files are in a folder that is removed afterwards. The folder is made in the working
    directory of the job, which its nodes share.

    Args:
        words: the command line, without the name of the command.

    Raises:
        UsageError: an option is wrong, or has no meaning here.
        ClientError: the job was refused, or there is no server.
    """
    options = parse_with_directives(words, _make_parser)
    for name, reason in _REFUSED.items():
        if getattr(options, name):
            place = options.origins.get(name)
            where = f", which is in {place}" if place else ""
            raise UsageError(f"leave out --{name.replace('_', '-')}{where}: {reason}")
    options.input = _input_file()
    folder = Path(tempfile.mkdtemp(prefix=".pliant-run-", dir=options.chdir or "."))
    try:
        return _run(options, folder.resolve())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_parser(kind: type[Parser]) -> Parser:
    """Return the parser of ``jobsub``; errors of the command line name this command."""
    parser = make_parser(kind)
    if kind is Parser:
        parser.prog = PROG
    return parser


def _run(options: Namespace, folder: Path) -> int:
    place = str(folder).replace("%", "%%")
    options.output, options.error = f"{place}/out", f"{place}/err"
    job = job_of(options)
    follower = _Follower(folder)
    number = 0
    with Connection() as link, Interrupts() as interrupts:
        is_lost = not options.input and _has_input()
        if is_lost:
            print_error(PROG, _NOT_PASSED_ON)
        try:
            with interrupts.shielded():
                number = send_job(link, job)
            final = follower.until_end(number)
        except Interrupted:
            if not number:
                raise
            interrupts.ignore()
            link.request("cancel", ids=[number])
            final = follower.until_end(number)
    if not (is_lost or options.input) and _has_input():
        print_error(PROG, _NOT_PASSED_ON)
    code = report_end(final, PROG)
    was_cancelled = interrupts.number and final["state"] != "COMPLETED"
    return 128 + interrupts.number if was_cancelled else code


def _input_file() -> str:
    """Return the path of the file that is this process's standard input; empty if it is no file."""
    try:
        status = os.fstat(0)
        path = os.readlink("/proc/self/fd/0")
    except OSError:
        return ""
    return path if stat.S_ISREG(status.st_mode) and os.path.exists(path) else ""


def _has_input() -> bool:
    """Return whether something that nobody has read waits on standard input."""
    try:
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode):  # without a name, or it would be passed on
            return status.st_size > os.lseek(0, 0, os.SEEK_CUR)
        if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            return any(fcntl.ioctl(0, termios.FIONREAD, bytes(4)))
    except OSError:
        pass  # it is closed, or of another kind
    return False


class _Follower:
    """Copies the output files of a job to this process's outputs, until the job has ended."""

    def __init__(self, folder: Path) -> None:
        self._streams: list[_Stream] = [
            _Stream(folder / "out", sys.stdout.buffer),
            _Stream(folder / "err", sys.stderr.buffer),
        ]

    def until_end(self, number: int) -> dict[str, Any]:
        """Return the job when it has ended and its output is copied.

        Raises:
            ClientError: the server does not come back, or does not know the job.
        """
        ended = threading.Event()
        result: list[dict[str, Any] | ClientError] = []

        def wait() -> None:
            try:
                with Connection() as link:
                    result.append(wait_for_end(link, number))
            except ClientError as error:
                result.append(error)
            finally:
                ended.set()

        threading.Thread(target=wait, name="wait", daemon=True).start()
        while not ended.wait(_INTERVAL_S):
            self._copy()
        self._copy()
        if not result:
            raise ClientError(f"job {number}: its end is not known")
        if isinstance(result[0], ClientError):
            raise result[0]
        return result[0]

    def _copy(self) -> None:
        for stream in self._streams:
            stream.copy()


class _Stream:
    """One output file of the job, and how much of it has been copied."""

    def __init__(self, path: Path, target: BinaryIO) -> None:
        self._path, self._target = path, target
        self._file: BinaryIO | None = None

    def copy(self) -> None:
        """Copy what the job has added to the file since the last call."""
        if self._file is None:
            try:
                self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115  # until the end
            except FileNotFoundError:
                return  # the job has not started
        while data := self._file.read(_CHUNK):
            self._target.write(data)
        self._target.flush()

"""Submit a job that has the input and outputs of this process, and wait until it has ended."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import threading
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.commands.jobsub import job_of, make_parser, report_end
from pliant.client.connection import Connection
from pliant.client.reconnecting import send_job, wait_for_end
from pliant.client.run.session import Session
from pliant.client.run.wait_notice import WaitNotice
from pliant.client.submission.directives import parse_with_directives
from pliant.client.terminal.interrupts import Interrupted, Interrupts
from pliant.client.terminal.output import Parser
from pliant.protos.interactive.session_address import VARIABLE

PROG = "pliant run"

#: Seconds between two looks at the output files.
_INTERVAL_S = 0.05

_CHUNK = 1 << 20

#: Options of ``jobsub`` that ``pliant run`` does not have, with the reason.
_SHOWN = "it shows the output of the job on its own outputs"
_REFUSED = {
    "input": "the job reads the standard input of `pliant run`",
    "output": _SHOWN,
    "error": _SHOWN,
    "record_load": "the record would be removed with the output; submit the job with `jobsub`",
    "stage": "it needs a shared directory; submit the job with `jobsub --wait --stage`",
    "stage_out": "it needs a shared directory; submit the job with `jobsub --wait --stage`",
    "hold": "it waits for the end of the job, and a held job does not start",
    "query": "it submits the job; ask with `jobsub --query`",
    "wait": "it always waits for the end of the job",
    "parsable": _SHOWN,
    "json": _SHOWN,
}


def run_interactively(words: list[str]) -> int:
    """Submit a job, show its output, and return its exit code when it has ended.

    The output files of the job are in a folder that is removed afterwards. The folder is made in
    the working directory of the job, which the nodes of the job share.

    Args:
        words: the command line, without the name of the command.

    Raises:
        UsageError: an option is wrong, or has no meaning for an interactive job.
        ClientError: the job was refused, or there is no server.
    """
    options = parse_with_directives(words, _make_parser)
    for name, reason in _REFUSED.items():
        if getattr(options, name):
            place = options.origins.get(name)
            where = f", which is in {place}" if place else ""
            raise UsageError(f"leave out --{name.replace('_', '-')}{where}: {reason}")
    source = _find_input()
    if options.pty and not os.isatty(0):
        raise UsageError("--pty: standard input is no terminal; leave out --pty")
    options.input = source if source != _LIVE else ""
    folder = Path(tempfile.mkdtemp(prefix=".pliant-run-", dir=options.chdir or "."))
    try:
        return _run(options, folder.resolve(), has_live_input=source == _LIVE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_parser(kind: type[Parser]) -> Parser:
    """Return the parser of ``jobsub`` with ``--pty``; errors name this command.

    If ``kind`` is not `Parser`, the parser is for lines in a script, and has no ``--pty``.
    """
    parser = make_parser(kind)
    if kind is Parser:  # not in the lines of a script, which `jobsub` reads, too
        parser.prog = PROG
        parser.add_argument(
            "--pty",
            action="store_true",
            help="run the program on a terminal, which is connected with this one",
        )
    return parser


def _run(options: Namespace, folder: Path, *, has_live_input: bool) -> int:
    place = str(folder).replace("%", "%%")
    options.output, options.error = f"{place}/out", f"{place}/err"
    job = job_of(options)
    if options.pty:
        _check_terminal_job(job)
    number = 0
    with Connection() as link, Interrupts() as interrupts, ExitStack() as stack:
        session = None
        # Tasks of an array cannot share an input.
        if has_live_input and not job.get("array"):
            job["env"] = {"TERM": os.environ.get("TERM", ""), **job["env"], VARIABLE: str(folder)}
            is_local = _is_local(link.request("nodes")["server"]["address"])
            session = Session(folder, has_terminal=options.pty, is_local=is_local)
            stack.callback(session.close)
        follower = _Follower(folder, session)
        try:
            with interrupts.shielded():
                number = send_job(link, job)
            line_end = "\r\n" if options.pty else "\n"
            stack.callback(WaitNotice(number, job["sizes"], line_end=line_end).stop)
            final = follower.until_end(number)
        except (Interrupted, OSError) as error:
            if not number:
                raise
            interrupts.ignore()
            link.request("cancel", ids=[number])
            if isinstance(error, OSError):  # the output cannot be written
                follower.stop()
            final = follower.until_end(number)
            if isinstance(error, OSError):
                raise
    code = report_end(final, PROG)
    was_cancelled = interrupts.number and final["state"] != "COMPLETED"
    return 128 + interrupts.number if was_cancelled else code


def _check_terminal_job(job: dict[str, Any]) -> None:
    """Check that exactly one process gets the terminal.

    Raises:
        UsageError: the job has several processes.
    """
    if job.get("array"):
        raise UsageError("--pty: an array has several tasks; leave out --array")
    if job["sizes"] != "1" and job["type"] != "script":
        raise UsageError(
            f"--pty: {job['sizes']} processes cannot share a terminal; leave out -n, or reserve "
            "processors for one process with --type script"
        )


def _is_local(address: str) -> bool:
    """Return whether only processes of this host can reach a server at this address."""
    return address.startswith(("unix:", "127.", "localhost:", "[::1]"))


#: Stands for an input that is not a file that the nodes can open, so it is passed on.
_LIVE = "-"


def _find_input() -> str:
    """Determine how the job can read the standard input of this process.

    Returns:
        The path if the input is a file that other processes can open; `_LIVE` for other input;
        empty if there is none.
    """
    try:
        status = os.fstat(0)
        path = os.readlink("/proc/self/fd/0")
        # If it was closed, Python may have opened something else with this number.
        is_readable = os.get_inheritable(0) and os.readv(0, []) == 0
    except OSError:
        return ""  # it is closed, or open for writing only
    if stat.S_ISREG(status.st_mode) and os.path.exists(path):
        return path
    return "" if path == os.devnull or not is_readable else _LIVE


class _Follower:
    """Copies the output files of a job to this process's outputs, until the job has ended."""

    def __init__(self, folder: Path, session: Session | None) -> None:
        self._session = session
        self._streams: list[_Stream] = [
            _Stream(folder / "out", sys.stdout.buffer),
            _Stream(folder / "err", sys.stderr.buffer),
        ]

    def until_end(self, number: int) -> dict[str, Any]:
        """Return the job when it has ended and its output is copied.

        Raises:
            ClientError: the server does not come back, or does not know the job.
            OSError: the output cannot be written.
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

    def stop(self) -> None:
        """Stop copying, because this process can no longer write its output."""
        self._streams, self._session = [], None

    def _copy(self) -> None:
        for stream in self._streams:
            stream.copy()
        if self._session is not None and self._session.output_is_closed:
            raise BrokenPipeError


class _Stream:
    """One output file of the job, and how much of it has been copied."""

    def __init__(self, path: Path, target: BinaryIO) -> None:
        self._path, self._target = path, target
        self._file: BinaryIO | None = None

    def copy(self) -> None:
        """Copy the bytes that the job has written since the last call to this process's output."""
        if self._file is None:
            try:
                self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115  # until the end
            except FileNotFoundError:
                return  # the job has not started
        while data := self._file.read(_CHUNK):
            self._target.write(data)
        self._target.flush()

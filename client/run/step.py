"""A step or command of a script: request it, pass on signals to it, and return its exit code."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pliant.client.client_errors import StepFailedError
from pliant.client.step_socket import connect, messages

#: Signals that are passed on to the ranks of a step.
PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step or command ended: its exit code, its signal, and the reason if it failed."""

    code: int
    #: The signal that ended it; 0 if none did.
    signal: int
    #: Why it failed; empty if it did not.
    reason: str

    @property
    def exit_code(self) -> int:
        """Return the exit code that a shell reports for a command that ended in this way."""
        return 128 + self.signal if self.signal else self.code


def run_step(
    socket_path: str, size: int, argv: Sequence[str], umask: int, *, sizes: str = ""
) -> StepEnd:
    """Run a program on processors of this job, and return how it ended.

    The program has the standard input and outputs of this process.

    Args:
        socket_path: the path of the socket on which the shim of the job's script, the process that
            started the script, receives requests.
        size: number of ranks; 0 for all processors that the job has.
        argv: the program and its arguments.
        umask: the umask of the program.
        sizes: numbers of ranks that a malleable step may have, such as ``1-8:pow2``; empty for a
            rigid step.

    Raises:
        StepFailedError: the step was refused, or the shim has ended.
    """
    request = {"op": "run", "size": size, "sizes": sizes, "argv": list(argv)}
    return _run(socket_path, umask, request)


def run_on_host(socket_path: str, hosts: Sequence[str], command: str, umask: int) -> StepEnd:
    """Run a shell command on a host of this job, and return how it ended.

    The command has the outputs of this process and, on the host of the script, also its input.

    Args:
        socket_path: the path of the socket on which the shim of the job's script, the process that
            started the script, receives requests.
        hosts: name and addresses of the host; one of them must be in the list of the job's nodes.
        command: the command.
        umask: the umask of the command.

    Raises:
        StepFailedError: the job has no such host, or the shim has ended.
    """
    return _run(socket_path, umask, {"op": "launch", "hosts": list(hosts), "command": command})


def _run(socket_path: str, umask: int, request: dict[str, Any]) -> StepEnd:
    with connect(socket_path) as link, _signals_passed_on(link):
        _send_request(link, {**request, "env": dict(os.environ), "umask": umask})
        for message in messages(link):
            match message.get("op"):
                case "output":
                    _write(int(message["kind"]), base64.b64decode(message["data"]))
                case "refused":
                    raise StepFailedError(f"refused: {message['reason']}")
                case "ended":
                    return StepEnd(
                        int(message["code"]), int(message["signal"]), str(message["reason"])
                    )
    raise StepFailedError("the job ended before the step did")


def _send_request(link: socket.socket, request: dict[str, Any]) -> None:
    line = json.dumps({**request, "cwd": os.getcwd()}).encode("ascii") + b"\n"
    try:
        sent = socket.send_fds(link, [line], [0, 1, 2])
        link.sendall(line[sent:])
    except OSError as error:
        raise StepFailedError(f"cannot send the request: {error.strerror}") from None


def _write(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, output of ranks on other nodes, to a file descriptor.

    Raises:
        StepFailedError: the output cannot be written.
    """
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError as error:
            raise StepFailedError(f"cannot write the output: {error.strerror}") from None


@contextmanager
def _signals_passed_on(link: socket.socket) -> Iterator[None]:
    """Within this context, pass signals that this process receives on to the step."""

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(OSError):  # the step has ended
            link.sendall(json.dumps({"op": "signal", "number": number}).encode() + b"\n")

    former = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)

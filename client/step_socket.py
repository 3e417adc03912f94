"""Connections to the socket on which the shim of a job script receives requests for steps.

The shim is the process that has started the script on the first node of the job.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pliant.client.client_errors import StepFailedError

_CHUNK = 1 << 16


def connect(path: str) -> socket.socket:
    """Connect to the shim, the process that started the job's script; return the connection.

    ``path`` is the path of the shim's unix socket.

    Raises:
        StepFailedError: no shim listens there, for example because this is another node of the job.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Through its open folder, because the whole path may be longer than a socket address.
        folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            link.connect(f"/proc/self/fd/{folder}/{Path(path).name}")
        finally:
            os.close(folder)
    except OSError as error:
        link.close()
        raise StepFailedError(
            f"cannot reach the job: {path}: {error.strerror}; steps start on the node of the "
            "script, while it runs"
        ) from None
    return link


def messages(link: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield the messages that the job's shim sends, until the connection ends.

    The shim is the process that started the job's script.
    """
    rest = b""
    while True:
        try:
            data = link.recv(_CHUNK)
        except OSError:
            return
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


def resize_step(socket_path: str, step: int, size: int) -> None:
    """Set the size of a malleable step of this job.

    Args:
        socket_path: the path of the socket of the shim, the process that started the job's script.
        step: the number of the step.
        size: the number of ranks; 0 to let the step grow and shrink again.

    Raises:
        StepFailedError: the step cannot have this size, or the shim has ended.
    """
    with connect(socket_path) as link:
        line = json.dumps({"op": "resize", "step": step, "size": size}).encode() + b"\n"
        with suppress(OSError):  # the shim has ended, and there is no answer
            link.sendall(line)
        answer = next(messages(link), None)
    if answer is None:
        raise StepFailedError("the job has ended")
    if answer.get("op") == "refused":
        raise StepFailedError(f"refused: {answer['reason']}")

"""Read the output of a job from the file that this host shares with the nodes."""

from __future__ import annotations

import os
from typing import BinaryIO

from pliant.client.api.records import Job
from pliant.client.client_errors import RequestError

_BLOCK = 1 << 16
#: States in which a job without a file has simply not printed anything yet.
_NOT_STARTED = frozenset({"PENDING", "HELD", "STARTING", "CANCELLED", "REJECTED", "NODE_FAIL"})


def read_output(job: Job, tail: int | None) -> str:
    """Return the output of a job; empty if the job has not started.

    Args:
        job: the job.
        tail: the number of lines to return from the end; None for everything.

    Raises:
        RequestError: this host cannot read the file (kind ``not_found``).
    """
    if not job.stdout:
        raise RequestError(
            f"job {job.id}: you may not see where its output is; ask {job.user}",
            kind="not_found",
            field="stdout",
        )
    try:
        with open(job.stdout, "rb") as file:
            data = file.read() if tail is None else _last_lines(file, tail)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and job.state in _NOT_STARTED:
            return ""
        raise RequestError(
            f"job {job.id}: {job.stdout}: {(error.strerror or str(error)).lower()}; read it on a "
            "host that shares this folder with the nodes",
            kind="not_found",
            field="stdout",
        ) from None
    return data.decode("utf-8", errors="replace")


def _last_lines(file: BinaryIO, number: int) -> bytes:
    """Return the last lines of a file, reading only its end."""
    end = file.seek(0, os.SEEK_END)
    data = b""
    while end > 0 and data.count(b"\n") <= number:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        data = file.read(end - begin) + data
        end = begin
    lines = data.splitlines(keepends=True)
    return b"".join(lines[len(lines) - number :] if number < len(lines) else lines)

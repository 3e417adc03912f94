"""Submit a job and wait for its end, even if the server is restarted meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from pliant.client.client_errors import LostServerError, NoServerError, SilentServerError
from pliant.client.connection import Connection

#: States of a job that has ended.
FINAL_STATES = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "REJECTED"})

#: Seconds to wait for a server that has left: it may be restarting.
RECONNECT_S = 60.0
_RETRY_S = 0.1


def send_job(
    link: Connection,
    job: dict[str, Any],
    *,
    reconnect_s: float = RECONNECT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Submit a job and return its id; if the server restarts meanwhile, submit it again.

    The key makes this safe: a server that has already stored the job answers with the same id.

    Raises:
        NoServerError: there is no server, or it left and was not back within ``reconnect_s``.
        SilentServerError: the server has not answered within the connection's timeout.
        RequestError: the server refuses the job.
    """
    request = job | {"key": os.urandom(16).hex()}
    deadline = None
    while True:
        try:
            return int(link.request("submit", job=request)["id"])
        except SilentServerError:
            raise  # a silent server is not being restarted, and its timeout has passed
        except NoServerError as error:
            if deadline is None and not isinstance(error, LostServerError):
                raise
            deadline = deadline or time.monotonic() + reconnect_s
            if time.monotonic() >= deadline:
                raise
            sleep(_RETRY_S)


def wait_for_end(
    link: Connection,
    number: int,
    *,
    reconnect_s: float = RECONNECT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Wait until a job has ended, and return it.

    Raises:
        NoServerError: there has been no server for ``reconnect_s``.
        RequestError: there is no such job.
    """
    deadline = None
    while True:
        asked = time.monotonic()
        try:
            job = dict(link.request("wait", unlimited=True, id=number)["job"])
            if job.get("state") in FINAL_STATES:
                return job
            sleep(_RETRY_S)  # a server that stops answers all waiting requests
        except NoServerError:
            now = time.monotonic()
            if deadline is None or now - asked > _RETRY_S:  # it had answered, or listened, before
                deadline = now + reconnect_s
            if now >= deadline:
                raise
            sleep(_RETRY_S)

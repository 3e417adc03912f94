"""Submitting a job and waiting for its end, over a restart of the server if need be."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from pliant.client.connection import Connection
from pliant.client.errors import LostServerError, NoServerError, SilentServerError

#: States after which a job changes no more.
FINAL_STATES = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "REJECTED"})

#: Seconds to look for a server that went away: it is being restarted.
PATIENCE_S = 60.0
_RETRY_S = 0.1


def send_job(
    link: Connection,
    job: dict[str, Any],
    *,
    patience_s: float = PATIENCE_S,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Submit a job and return its id; when the server leaves meanwhile, ask again.

    The key makes that safe: a server that has stored the job already answers with the same id.

    Raises:
        NoServerError: there is no server, or it left and did not come back in ``patience_s``.
        SilentServerError: it is there, and has not answered in the connection's time.
        RequestError: the server refuses the job.
    """
    request = job | {"key": os.urandom(16).hex()}
    deadline = None
    while True:
        try:
            return int(link.request("submit", job=request)["id"])
        except SilentServerError:
            raise  # nobody restarts it, and its time has been waited for
        except NoServerError as error:
            if deadline is None and not isinstance(error, LostServerError):
                raise
            deadline = deadline or time.monotonic() + patience_s
            if time.monotonic() >= deadline:
                raise
            sleep(_RETRY_S)


def wait_for_end(
    link: Connection,
    number: int,
    *,
    patience_s: float = PATIENCE_S,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Return the job when it is final.

    Raises:
        NoServerError: there has been no server for ``patience_s``.
        RequestError: there is no such job.
    """
    deadline = None
    while True:
        asked = time.monotonic()
        try:
            job = dict(link.request("wait", patient=True, id=number)["job"])
            if job.get("state") in FINAL_STATES:
                return job
            sleep(_RETRY_S)  # the server let go of those who wait because it stops
        except NoServerError:
            now = time.monotonic()
            if deadline is None or now - asked > _RETRY_S:  # it had answered, or listened, before
                deadline = now + patience_s
            if now >= deadline:
                raise
            sleep(_RETRY_S)

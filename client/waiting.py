"""Submit a job, wait for its end, and follow changes, even if the server is restarted meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pliant.client.client_errors import (
    ClientError,
    LostServerError,
    NoServerError,
    SilentServerError,
)
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
    """Submit a job and return its id; submit it again if the server restarts in the meantime.

    The key of the request prevents a second job: a server that has already stored the job answers
    with the same id.

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


def follow_changes(
    link: Connection,
    *,
    reconnect_s: float = RECONNECT_S,
    sleep: Callable[[float], None] = time.sleep,
    **fields: Any,
) -> Iterator[dict[str, Any]]:
    """Yield the messages of a subscription; subscribe again if the server leaves.

    The first message of each subscription has the present state. Lines of the history that are
    stored while the server is away follow when it is back, so none is missed.

    Raises:
        NoServerError: there is no server, or it left and was not back within ``reconnect_s``.
        RequestError: the server refuses the subscription.
    """
    deadline: float | None = None
    has_begun = False
    while True:
        try:
            for message in link.watch(**fields):
                has_begun, deadline = True, None
                fields["after"] = message["seq"]
                fields.pop("since", None)
                yield message
        except NoServerError:
            if not has_begun:
                raise
            deadline = deadline or time.monotonic() + reconnect_s
            if time.monotonic() >= deadline:
                raise
            sleep(_RETRY_S)


class ChangeSignal:
    """Tells whether anything has changed at the server; follows its changes in a thread."""

    def __init__(self, directory: str) -> None:
        self._changed, self._closed = threading.Event(), threading.Event()
        self._changed.set()
        self._link = Connection(directory)
        self._thread = threading.Thread(target=self._follow, name="changes", daemon=True)
        self._thread.start()

    def take(self) -> bool:
        """Return whether anything has changed since the last call."""
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    def close(self) -> None:
        """End the subscription and the thread."""
        self._closed.set()
        self._link.interrupt()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                for message in self._link.watch():
                    if message.keys() - {"ok", "seq", "now", "strategy"}:
                        self._changed.set()
                    if self._closed.is_set():
                        break
            except ClientError:
                self._changed.set()  # the caller's next request reports the error
                self._closed.wait(1.0)

"""Submit a job, wait for its end, and follow changes, even if the server is restarted meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping

from pliant.client.client_errors import (
    ClientError,
    LostServerError,
    NoServerError,
    RequestError,
    SilentServerError,
    WaitTimeoutError,
)
from pliant.client.connection import Connection
from pliant.client.sans_io_operations import Ask, Pause, run
from pliant.client.server_socket import UNLIMITED

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

    from pliant.client.sans_io_operations import Steps

#: States of a job that has ended.
FINAL_STATES = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "REJECTED"})

#: Seconds to wait for a server that has left: it may be restarting.
RECONNECT_S = 60.0
#: Seconds until the first attempt to reach a server that has left, and the longest pause.
RETRY_S, MAX_RETRY_S = 0.1, 1.0


def send_job(
    link: Connection,
    job: dict[str, Any],
    *,
    reconnect_s: float = RECONNECT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Submit a job and return its id; submit it again if the server restarts in the meantime.

    The errors are those of `submission`.
    """
    return run(link, submission(job, reconnect_s=reconnect_s), sleep=sleep)


def submission(job: dict[str, Any], *, reconnect_s: float = RECONNECT_S) -> Steps[int]:
    """Yield the requests that submit a job, and return its id as their result.

    If the server restarts in the meantime, the job is submitted again. The key of the request
    prevents a second job: a server that has already stored the job answers with the same id.

    Raises:
        NoServerError: there is no server, or it left and was not back within ``reconnect_s``.
        SilentServerError: the server has not answered within the connection's timeout.
        RequestError: the server refuses the job.
    """
    request = job | {"key": os.urandom(16).hex()}
    absence = Absence(reconnect_s)
    while True:
        try:
            answer = yield Ask("submit", {"job": request})
            return int(answer["id"])
        except SilentServerError:
            raise  # a silent server is not being restarted, and its timeout has passed
        except NoServerError as error:
            if not (absence.has_begun or isinstance(error, LostServerError)):
                raise
            pause_s = absence.pause(error)
        yield Pause(pause_s)


def wait_for_end(
    link: Connection,
    number: int | str,
    *,
    reconnect_s: float = RECONNECT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Wait until a job has ended, also if the server restarts in the meantime, and return the job.

    The errors are those of `end_of_job`.
    """
    return run(link, end_of_job(number, reconnect_s=reconnect_s), sleep=sleep)


def end_of_job(
    number: int | str, *, timeout_s: float | None = None, reconnect_s: float = RECONNECT_S
) -> Steps[dict[str, Any]]:
    """Yield the steps that wait until a job has ended, and return the job as their result.

    A restart of the server does not end the wait.

    Raises:
        WaitTimeoutError: the job has not ended within ``timeout_s``.
        NoServerError: there has been no server for ``reconnect_s``.
        RequestError: there is no such job.
    """
    deadline = UNLIMITED if timeout_s is None else time.monotonic() + timeout_s
    absence = Absence(reconnect_s)
    while True:
        asked = time.monotonic()
        try:
            answer = yield Ask("wait", {"id": number}, max(0.001, deadline - asked))
            job = dict(answer["job"])
            if job.get("state") in FINAL_STATES:
                return job
            pause_s = RETRY_S  # a server that stops answers all waiting requests
        except NoServerError as error:
            now = time.monotonic()
            if now >= deadline:
                raise WaitTimeoutError(
                    f"job {number} has not ended within {timeout_s:g} s; it continues"
                ) from None
            if now - asked > RETRY_S:  # the server had answered, or listened, before
                absence = Absence(reconnect_s)
            pause_s = absence.pause(error)
        except RequestError as error:
            if error.kind != "stopping":
                raise
            pause_s = RETRY_S  # it may be restarted
        yield Pause(pause_s)


class Absence:
    """A time without a server: computes the pause until the next attempt, and when to give up.

    The pauses grow, so that many programs that wait do not keep the machine busy.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._deadline: float | None = None
        self._pause_s = RETRY_S

    @property
    def has_begun(self) -> bool:
        """Return whether an attempt to reach the server has failed since this object was made."""
        return self._deadline is not None

    def pause(self, error: NoServerError) -> float:
        """Return the seconds to pause after a failed attempt to reach the server.

        Raises:
            NoServerError: ``error`` itself, if the server has been away for ``limit_s`` seconds.
        """
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._limit_s
        if now >= self._deadline:
            raise error
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, MAX_RETRY_S)
        return min(pause_s, self._deadline - now)


class Subscription:
    """A subscription to changes that can be repeated after the connection to the server was lost.

    It stores the position of the last message, so that a new subscription continues after it.
    Events that are stored while the server is away follow when it is back, so none is missed. The
    first message of each subscription has the present state.
    """

    def __init__(self, fields: dict[str, Any], reconnect_s: float = RECONNECT_S) -> None:
        #: The fields of the next request.
        self.fields = fields
        self._reconnect_s = reconnect_s
        self._absence: Absence | None = None

    def received(self, message: Mapping[str, Any]) -> None:
        """Store the position of a message, so that the next subscription continues after it."""
        self.fields["after"] = message["seq"]
        self.fields.pop("since", None)
        self._absence = Absence(self._reconnect_s)

    def pause(self, error: NoServerError) -> float:
        """Return the seconds to pause before the next attempt, after the connection was lost.

        Raises:
            NoServerError: there was no server from the beginning, or it has been away for too long.
        """
        if self._absence is None:
            raise error
        return self._absence.pause(error)


def follow_changes(
    link: Connection,
    *,
    reconnect_s: float = RECONNECT_S,
    sleep: Callable[[float], None] = time.sleep,
    **fields: Any,
) -> Iterator[dict[str, Any]]:
    """Yield the messages of a subscription; subscribe again if the server leaves.

    Raises:
        NoServerError: there is no server, or it left and was not back within ``reconnect_s``.
        RequestError: the server refuses the subscription.
    """
    yield from follow(link, Subscription(fields, reconnect_s), sleep=sleep)


def follow(
    link: Connection, subscription: Subscription, *, sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """Yield the messages of a subscription; subscribe again if the server leaves.

    The new subscription continues after the last message. The errors are those of
    `follow_changes`.
    """
    while True:
        try:
            for message in link.watch(**subscription.fields):
                subscription.received(message)
                yield message
        except NoServerError as error:
            sleep(subscription.pause(error))


class ChangeSignal:
    """Detects whether jobs or nodes have changed, by a subscription in a thread."""

    def __init__(self, directory: str) -> None:
        import threading  # `jobsub` alone does not need it, and starts sooner

        self._changed, self._closed = threading.Event(), threading.Event()
        self._changed.set()
        self._link = Connection(directory)
        self._thread = threading.Thread(target=self._follow, name="changes", daemon=True)
        self._thread.start()

    def take(self) -> bool:
        """Return whether jobs or nodes have changed since the last call."""
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

"""Requests of users that wait for the core's answer."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import Future

from pliant.core.commands import AnswerUser
from pliant.core.events import (
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobResumed,
    JobSignalled,
    JobSuspended,
    NodeDrained,
    NodeRemoved,
    NodeResumed,
    PriorityChanged,
    ResizeRequested,
    TasksCancelled,
)
from pliant.server.support.threads import uncancellable_future

UserEvent = (
    JobCancelled
    | TasksCancelled
    | JobHeld
    | JobReleased
    | PriorityChanged
    | JobSuspended
    | JobResumed
    | JobSignalled
    | JobRequeued
    | ResizeRequested
    | NodeDrained
    | NodeResumed
    | NodeRemoved
)


class StorageDelayedError(Exception):
    """The result of a request cannot be stored yet. The message is the reason."""

    def __init__(self, why: str, *, taken: bool) -> None:
        """Create the error.

        Args:
            why: the reason for the delay.
            taken: whether the core has handled the request already.
        """
        super().__init__(why)
        self.taken = taken


class RequestTable:
    """Users' requests that wait for an answer, by number. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[AnswerUser]] = {}
        self._last = 0

    def new(self) -> tuple[int, Future[AnswerUser]]:
        """Return a new request number and the future of its answer."""
        future: Future[AnswerUser] = uncancellable_future()
        with self._lock:
            self._last += 1
            self._waiting[self._last] = future
            return self._last, future

    def answer(self, answer: AnswerUser) -> None:
        """Set the answer to a request, unless its user was told that the result is delayed."""
        with self._lock:
            future = self._waiting.pop(answer.request, None)
        if future is not None:
            future.set_result(answer)

    def fail(self, request: int, error: Exception) -> None:
        """Make the future of a request fail with an error that the core raised."""
        with self._lock:
            future = self._waiting.pop(request, None)
        if future is not None:
            future.set_exception(error)

    def delay(self, withdrawn: Collection[int], why: str) -> None:
        """Make all waiting requests fail with StorageDelayedError.

        The error says whether the core has handled the request already.

        Args:
            withdrawn: the numbers of the requests that the core has not handled and never will.
            why: the reason for the delay.
        """
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for request, future in waiting.items():
            future.set_exception(StorageDelayedError(why, taken=request not in withdrawn))

"""Users who wait for the core's answer to a request."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import Future

from pliant.core.commands import Answer
from pliant.core.events import (
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobResumed,
    JobSuspended,
    NodeDrained,
    NodeRemoved,
    NodeResumed,
    PriorityChanged,
    ResizeRequested,
)
from pliant.server.support.threads import uncancellable_future

UserEvent = (
    JobCancelled
    | JobHeld
    | JobReleased
    | PriorityChanged
    | JobSuspended
    | JobResumed
    | JobRequeued
    | ResizeRequested
    | NodeDrained
    | NodeResumed
    | NodeRemoved
)


class StorageDelayedError(Exception):
    """What a request wants cannot be stored yet; the message says why."""

    def __init__(self, why: str, *, taken: bool) -> None:
        """``taken``: the core has handled the request; else it was withdrawn."""
        super().__init__(why)
        self.taken = taken


class PendingRequests:
    """The requests, by number; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Answer]] = {}
        self._last = 0

    def new(self) -> tuple[int, Future[Answer]]:
        """Number a request; return who waits for it, too."""
        future: Future[Answer] = uncancellable_future()
        with self._lock:
            self._last += 1
            self._waiting[self._last] = future
            return self._last, future

    def answer(self, answer: Answer) -> None:
        """Give the core's answer to who waits for it still."""
        with self._lock:
            future = self._waiting.pop(answer.request, None)
        if future is not None:
            future.set_result(answer)

    def fail(self, request: int, error: Exception) -> None:
        """Tell who waits that there will be no answer."""
        with self._lock:
            future = self._waiting.pop(request, None)
        if future is not None:
            future.set_exception(error)

    def delay(self, withdrawn: Collection[int], why: str) -> None:
        """Tell all who wait that it will take long; these requests the core has not seen."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for request, future in waiting.items():
            future.set_exception(StorageDelayedError(why, taken=request not in withdrawn))

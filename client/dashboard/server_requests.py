"""Requests of the page to the Pliant server: reading about one job, and actions.

The Pliant server decides for each request whether the user may make it.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pliant.client.client_errors import RequestError
from pliant.client.connection import Connection

#: Answers about one job are used again for this time, so that many browsers cost as much as one.
CACHE_S = 1.0
_MAX_CACHED = 200
#: Bytes of the output of a job that the page shows at most.
OUTPUT_BYTES = 16 << 10
#: Actions on a job, with the fields of the request that the page may set.
JOB_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "hold": (),
    "release": (),
    "suspend": (),
    "resume_job": (),
    "requeue": (),
    "resize": ("size",),
    "cancel": (),
}
#: Actions on a node, likewise.
NODE_ACTIONS: Mapping[str, tuple[str, ...]] = {"drain": ("reason",), "resume": ()}


class ServerRequests:
    """Sends requests to the Pliant server from threads of the web server, one at a time."""

    def __init__(self, directory: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._link, self._lock, self._clock = Connection(directory), threading.Lock(), clock
        self._cache: dict[tuple[str, int], tuple[float, dict[str, Any]]] = {}

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._link.close()

    def read(self, op: str, job: int) -> dict[str, Any]:
        """Return the answer to a request about a job, which may be up to `CACHE_S` seconds old.

        Raises:
            ClientError: the Pliant server refuses, or does not answer.
        """
        with self._lock:
            at, answer = self._cache.get((op, job), (-CACHE_S, {}))
            if self._clock() - at >= CACHE_S:
                answer = self._link.request(op, id=job)
                if len(self._cache) >= _MAX_CACHED:
                    self._cache.clear()
                self._cache[op, job] = (self._clock(), answer)
            return answer

    def act_on_job(self, action: str, job: int, given: Mapping[str, Any]) -> str:
        """Carry out an action on a job; return the message of the Pliant server.

        Args:
            action: one of `JOB_ACTIONS`, such as ``resize``.
            job: the number of the job.
            given: the values that the page sent; only those that the action uses are passed on.

        Raises:
            ClientError: the Pliant server refuses, or does not answer.
            KeyError: there is no such action.
        """
        fields = {name: given[name] for name in JOB_ACTIONS[action] if name in given}
        with self._lock:
            self._cache.clear()
            if action != "cancel":
                return str(self._link.request(action, id=job, **fields).get("message", ""))
            (result,) = self._link.request("cancel", ids=[job])["results"]
        if not result["ok"]:
            error = result["error"]
            raise RequestError(str(error["message"] if isinstance(error, dict) else error))
        return f"job {job} is cancelled"

    def strategies(self) -> dict[str, Any]:
        """Return the known strategies with their options, and the one that is in use.

        Raises:
            ClientError: the Pliant server refuses, or does not answer.
        """
        with self._lock:
            return self._link.request("strategies")

    def use_strategy(self, given: Mapping[str, Any]) -> str:
        """Make the Pliant server schedule with another strategy; return its message.

        Args:
            given: the values that the page sent: ``strategy``, the name, and ``options``.

        Raises:
            ClientError: the Pliant server refuses, or does not answer.
        """
        fields = {name: given.get(name) for name in ("strategy", "options")}
        with self._lock:
            return str(self._link.request("strategy", **fields).get("message", ""))

    def act_on_node(self, action: str, node: str, given: Mapping[str, Any]) -> str:
        """Carry out an action on a node; return the message of the Pliant server.

        Args:
            action: one of `NODE_ACTIONS`, such as ``drain``.
            node: the name of the node.
            given: the values that the page sent; only those that the action uses are passed on.

        Raises:
            ClientError: the Pliant server refuses, or does not answer.
            KeyError: there is no such action.
        """
        fields = {name: given[name] for name in NODE_ACTIONS[action] if name in given}
        with self._lock:
            return str(self._link.request(action, node=node, **fields).get("message", ""))


def read_output(path: str, owner: int) -> str | None:
    """Return the last `OUTPUT_BYTES` of an output file; None if this process should not read it.

    Only regular files that belong to ``owner`` are read, and no link is followed: the user of the
    job can put anything at its path.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
            return None
        at = max(0, found.st_size - OUTPUT_BYTES)
        return os.pread(descriptor, OUTPUT_BYTES, at).decode("utf-8", "replace")
    finally:
        os.close(descriptor)

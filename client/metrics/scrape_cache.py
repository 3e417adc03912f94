"""Asks the server for its metrics, at most once in an interval whatever the number of scrapers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pliant.client.client_errors import ClientError


class ScrapeCache:
    """Metrics of a server in the text format, which may be as old as the interval.

    Args:
        ask: sends the request to the server; raises ClientError if there is no answer.
        encode: makes the text from the answer, or from None.
        interval_s: the server is not asked again within this time, seconds.
        report: is called with a message when the server stops answering, and when it answers again.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        ask: Callable[[], Mapping[str, Any]],
        encode: Callable[[Mapping[str, Any] | None], bytes],
        interval_s: float,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._encode, self._interval_s = ask, encode, interval_s
        self._report, self._clock = report, clock
        self._lock = threading.Lock()
        self._text = b""
        self._asked_at: float | None = None
        self._error = ""

    def text(self) -> bytes:
        """Return the metrics, from the server if the last answer is older than the interval.

        If several callers wait, one asks the server. The age counts from the end of a request, so
        that a slow server is asked less often.
        """
        with self._lock:
            now = self._clock()
            if self._asked_at is None or now - self._asked_at >= self._interval_s:
                self._text = self._encode(self._answer())
                self._asked_at = self._clock()
            return self._text

    def _answer(self) -> Mapping[str, Any] | None:
        try:
            answer = self._ask()
        except ClientError as error:
            if not self._error:
                self._report(f"no metrics: {error}")
            self._error = str(error)
            return None
        if self._error:
            self._report("the server answers again")
        self._error = ""
        return answer

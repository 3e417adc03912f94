"""Limits on peers that have not proved who they are."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pliant.protos.codec import CodecError

#: Streams that have not proved themselves, at a time. Each may have one message in memory.
MAX_UNAUTHENTICATED_STREAMS = 256
#: A line of one kind is written once in so many seconds.
LOG_INTERVAL_S = 10.0
_MAX_KINDS = 1024


class UnreadableMessage:
    """Stands for a message that cannot be decoded: gRPC would log a traceback for each of them."""


async def readable(messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yield messages as they arrive.

    Raises:
        CodecError: one of them cannot be decoded.
    """
    async for each in messages:
        if isinstance(each, UnreadableMessage):
            raise CodecError("a message cannot be decoded")
        yield each


class TooManyUnauthenticatedPeersError(Exception):
    """No more streams are taken until some have proved themselves, or have ended."""


class UnauthenticatedPeers:
    """Counts the streams that have not proved themselves. For one thread."""

    def __init__(self, limit: int = MAX_UNAUTHENTICATED_STREAMS) -> None:
        self._limit, self._count = limit, 0

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a stream until it has proved itself.

        Raises:
            TooManyStrangersError: there are as many as may be.
        """
        if self._count >= self._limit:
            raise TooManyUnauthenticatedPeersError(
                f"more than {self._limit} streams have not proved themselves"
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


class PeerWarnings:
    """Writes warnings that others can cause at will: one line of a kind in some seconds."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._clock = logger, clock
        #: By kind: when a line was written, and how many were left out since.
        self._written: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def warning(self, text: str, *values: object, kind: str = "") -> None:
        """Write a line, unless one of its kind was written a moment ago.

        Args:
            text: as for a logger.
            values: as for a logger.
            kind: what counts together; empty: all lines of this text.
        """
        kind, now = kind or text, self._clock()
        at, left_out = self._written.get(kind, (float("-inf"), 0))
        if now < at + LOG_INTERVAL_S:
            self._written[kind] = (at, left_out + 1)
            return
        more = f" (and {left_out} more like this before)" if left_out else ""
        self._logger.warning(f"{text}%s", *values, more)
        self._written[kind] = (now, 0)
        self._written.move_to_end(kind)
        if len(self._written) > _MAX_KINDS:
            self._written.popitem(last=False)

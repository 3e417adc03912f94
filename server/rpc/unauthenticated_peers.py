"""Limits on peers that are not authenticated yet."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pliant.protos.codec_error import CodecError

#: Maximum number of unauthenticated streams. Each may have one message in memory.
MAX_UNAUTHENTICATED_STREAMS = 256
#: A warning of one kind is logged once in this time, seconds.
LOG_INTERVAL_S = 10.0
_MAX_KINDS = 1024


class UnreadableMessage:
    """Stands for a message that cannot be decoded; gRPC itself would log a traceback."""


async def readable(messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yield messages as they arrive, and end with an error at the first undecodable one.

    Raises:
        CodecError: if one of them cannot be decoded.
    """
    async for each in messages:
        if isinstance(each, UnreadableMessage):
            raise CodecError("a message cannot be decoded")
        yield each


class TooManyUnauthenticatedPeersError(Exception):
    """The largest number of unauthenticated streams is open, so a new one is refused."""


class UnauthenticatedPeers:
    """Counts unauthenticated streams. Used by one thread only."""

    def __init__(self, limit: int = MAX_UNAUTHENTICATED_STREAMS) -> None:
        self._limit, self._count = limit, 0

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Within this context, count a stream as unauthenticated.

        Raises:
            TooManyUnauthenticatedPeersError: the largest permitted number of them is open.
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
    """Logs warnings that peers can cause at will: of each kind, at most one in 10 s."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._clock = logger, clock
        #: By kind: when a line was written, and how many were left out since.
        self._written: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def warning(self, text: str, *values: object, kind: str = "") -> None:
        """Log a warning, unless one of the same kind was logged within the last 10 s.

        Args:
            text: the message, as for a logger's ``warning``.
            values: the values for the message, as for a logger.
            kind: warnings of one kind are limited together; empty for the kind of this text.
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

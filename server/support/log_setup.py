"""Logging of the server: each event is one line, even if it contains control characters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pliant.protos.daemons.log_files import LogFile
from pliant.protos.daemons.log_handlers import make_log_handler, use_json

#: A repeated message is logged once in this time, seconds.
LOG_INTERVAL_S = 60.0

#: Logs each stored line of the history, but only as JSON.
HISTORY_LOG = logging.getLogger("pliant.history")
HISTORY_LOG.setLevel(logging.CRITICAL)


class OneLineFormatter(logging.Formatter):
    """A log formatter that escapes control characters, because names come from users."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the escaped message, without its traceback."""
        return escape_control(super().formatMessage(record))


def escape_control(text: str) -> str:
    """Return a text in which control characters and undecodable bytes are escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


class RateLimitedLog:
    """Logs a repeated problem at once, and then once a minute with the number of repetitions."""

    def __init__(self, write: Callable[..., None]) -> None:
        """Log with ``write``, a method of a logger such as ``log.warning``."""
        self._write = write
        self._shown: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def log(self, text: str, cause: str) -> None:
        """Log a message unless its cause was logged less than a minute ago.

        Args:
            text: a format with one ``%s`` for the cause.
            cause: identifies the problem.
        """
        now = time.monotonic()
        if now - self._shown.get(cause, -LOG_INTERVAL_S) < LOG_INTERVAL_S:
            self._left_out[cause] = self._left_out.get(cause, 0) + 1
            return
        self._shown[cause] = now
        more = self._left_out.pop(cause, 0)
        self._write(text, f"{cause} ({more} more times since the last line)" if more else cause)

    def reset(self) -> None:
        """Forget the messages of the last minute, because the problem is solved.

        If the problem returns, its first message is logged at once.
        """
        self._shown.clear()
        self._left_out.clear()


def log_to_stderr(*, debug: bool, log_format: str = "text") -> LogFile:
    """Send the log to standard error, or to the journal if systemd has connected it to that.

    Args:
        debug: whether to log debug messages, too.
        log_format: ``text`` or ``json``; the journal gets text in any case.

    Returns:
        The log file to reopen on SIGHUP.
    """
    handler = make_log_handler("pliant-server")
    handler.setFormatter(
        OneLineFormatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    )
    if log_format == "json" and use_json(handler, daemon="pliant-server"):
        HISTORY_LOG.setLevel(logging.INFO)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for noisy in ("asyncio", "grpc", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return handler.file

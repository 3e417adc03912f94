"""Logging of the daemon: one event is one line, whatever is in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pliant.protos.daemons.log_files import LogFile
from pliant.protos.daemons.log_handlers import LogHandler

#: A line that comes again and again is shown once in this time.
LOG_INTERVAL_S = 60.0


class OneLineFormatter(logging.Formatter):
    """Escapes control characters in messages: names and reasons come from users."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without tracebacks, escaped."""
        return escape_control(super().formatMessage(record))


def escape_control(text: str) -> str:
    """Return the text with every control character and undecodable byte as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


class RateLimitedLog:
    """Lets a line through at once, and then one a minute that says how many there were."""

    def __init__(self, write: Callable[..., None]) -> None:
        """``say``: a method of a logger."""
        self._write = write
        self._shown: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def log(self, text: str, cause: str) -> None:
        """Show a text with its cause in it, unless the same cause was shown just now."""
        now = time.monotonic()
        if now - self._shown.get(cause, -LOG_INTERVAL_S) < LOG_INTERVAL_S:
            self._left_out[cause] = self._left_out.get(cause, 0) + 1
            return
        self._shown[cause] = now
        more = self._left_out.pop(cause, 0)
        self._write(text, f"{cause} ({more} more times since the last line)" if more else cause)

    def reset(self) -> None:
        """It has passed: the next time is told at once."""
        self._shown.clear()
        self._left_out.clear()


def log_to_stderr(*, debug: bool) -> LogFile:
    """Send the log to standard error, where systemd or a supervisor collects it.

    Returns:
        The file that it is, if it is one.
    """
    handler = LogHandler()
    handler.setFormatter(
        OneLineFormatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for noisy in ("asyncio", "grpc", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return handler.file

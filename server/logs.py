"""Logging of the daemon: one event is one line, whatever is in it."""

from __future__ import annotations

import logging
import sys


class OneLineFormatter(logging.Formatter):
    """Escapes control characters in messages: names and reasons come from users."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without tracebacks, escaped."""
        return printable(super().formatMessage(record))


def printable(text: str) -> str:
    """Return the text with every control character and undecodable byte as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def log_to_stderr(*, debug: bool) -> None:
    """Send the log to standard error, where systemd or a supervisor collects it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        OneLineFormatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for noisy in ("asyncio", "grpc", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

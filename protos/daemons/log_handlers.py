"""Logging handlers of daemons: a file that may be renamed, or the journal of systemd."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TextIO

from pliant.protos.daemons import journal
from pliant.protos.daemons.log_files import LogFile

_PRIORITIES = (
    (logging.CRITICAL, journal.CRITICAL),
    (logging.ERROR, journal.ERROR),
    (logging.WARNING, journal.WARNING),
    (logging.INFO, journal.INFO),
)


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error, and opens its file again if that was renamed."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.file = LogFile()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one log record, to the new file if the old one was renamed by a log rotation."""
        self.file.reopen_if_moved()
        super().emit(record)


class JournalHandler(LogHandler):
    """Sends records to the journal with priority, logger, thread and place in the code as fields.

    Messages are formatted without time and level, which are fields. A record that the journal does
    not take is written to standard error.

    Args:
        target: the journal.
    """

    def __init__(self, target: journal.Journal) -> None:
        super().__init__()
        self._journal = target

    def setFormatter(self, fmt: logging.Formatter | None) -> None:
        """Use a formatter of the same class that writes messages without time and level."""
        super().setFormatter(type(fmt)("%(message)s") if fmt is not None else None)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a log record to the journal; if it is not accepted, write it to standard error."""
        try:
            self._journal.send(self.format(record), _priority(record.levelno), _fields(record))
        except OSError:
            super().emit(record)

    def close(self) -> None:
        """Close the socket of the journal."""
        self._journal.close()
        super().close()


def make_log_handler(daemon: str, **fields: str) -> LogHandler:
    """Return the log handler of a daemon: for the journal if standard error goes there.

    Otherwise the handler writes to standard error.

    Args:
        daemon: its name in the journal, such as ``pliant-server``.
        fields: further fields of each record in the journal, by names in upper case.
    """
    if not journal.is_journal():
        return LogHandler()
    return JournalHandler(journal.Journal({"SYSLOG_IDENTIFIER": daemon, **fields}))


def _priority(level: int) -> int:
    return next((priority for least, priority in _PRIORITIES if level >= least), journal.DEBUG)


def _fields(record: logging.LogRecord) -> Mapping[str, str]:
    return {
        "LOGGER": record.name,
        "THREAD_NAME": record.threadName or "",
        "CODE_FILE": record.pathname,
        "CODE_LINE": str(record.lineno),
        "CODE_FUNC": record.funcName or "",
    }

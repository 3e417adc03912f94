"""Logging handlers of daemons: a file that may be renamed, or the journal of systemd."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TextIO

from pliant.protos.daemons import systemd_journal
from pliant.protos.daemons.log_files import LogFile

_PRIORITIES = (
    (logging.CRITICAL, systemd_journal.CRITICAL),
    (logging.ERROR, systemd_journal.ERROR),
    (logging.WARNING, systemd_journal.WARNING),
    (logging.INFO, systemd_journal.INFO),
)


#: A word that names the value after it in the text of a log record, and any conversion.
_CONVERSION = re.compile(
    r"(?:\b(job|node|resize|world|rank|user) )?%(?:%|[-#0 +]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa])"
)
#: The name of a world: cluster, job, run and resize.
_WORLD = re.compile(r"[^.]*\.j(\d+)\.r\d+\.w(\d+)")


class JsonFormatter(logging.Formatter):
    """Formats each record as a JSON object in one line.

    The object has ``time``, ``level``, ``logger``, ``thread`` and ``message``. If the text of a
    record has values after a name, such as ``job %d`` or ``node %s``, they become further fields,
    such as ``job``. So do the values in the attribute ``fields`` of a record.

    Args:
        fields: fields that every object has.
    """

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._fields = dict(fields or {})

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a JSON object, in ASCII and without line breaks."""
        found: dict[str, object] = {
            "time": _timestamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        given = {**self._fields, **_named_values(record), **getattr(record, "fields", {})}
        found.update((key, value) for key, value in given.items() if key not in found)
        return json.dumps(found, default=str)


def _timestamp(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def _named_values(record: logging.LogRecord) -> dict[str, object]:
    """Return the values in a record's text that follow a known name, such as ``job`` in ``job 7``.

    The result has them by name. If a ``world`` (a set of ranks) is named, its name contains the
    numbers of its job and its resize. Both are added.
    """
    if not isinstance(record.args, tuple) or not isinstance(record.msg, str):
        return {}
    pairs = zip(_names(record.msg), record.args, strict=False)
    found: dict[str, object] = {
        name: value for name, value in pairs if name and isinstance(value, int | str)
    }
    if match := _WORLD.fullmatch(str(found.get("world", ""))):
        resize = {"resize": int(match[2])} if int(match[2]) else {}  # 0: the start of the run
        found = {"job": int(match[1]), **resize, **found}
    return found


@lru_cache(maxsize=1024)
def _names(text: str) -> Sequence[str]:
    """Return, for each ``%`` value in a log text, the name before it, such as ``job``.

    The name is empty for a value that does not follow one of the known names.
    """
    return [found[1] or "" for found in _CONVERSION.finditer(text) if found[0][-2:] != "%%"]


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error. If this is a log file, log rotation is noticed: see `emit`."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.file = LogFile()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record. If the log file was renamed, first open a new one at its path."""
        self.file.reopen_if_moved()
        super().emit(record)


class JournalHandler(LogHandler):
    """Sends records to the journal with priority, logger, thread and place in the code as fields.

    Messages are formatted without time and level, which are fields. A record that the journal does
    not take is written to standard error.

    Args:
        target: the journal.
    """

    def __init__(self, target: systemd_journal.Journal) -> None:
        super().__init__()
        self._journal = target

    def setFormatter(self, fmt: logging.Formatter | None) -> None:
        """Use a new formatter of the same class as ``fmt``, which writes only the message.

        The journal adds time and level.
        """
        super().setFormatter(type(fmt)("%(message)s") if fmt is not None else None)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a log record to the journal. If that fails, write the record to standard error."""
        try:
            self._journal.send(self.format(record), _priority(record.levelno), _fields(record))
        except OSError:
            super().emit(record)

    def close(self) -> None:
        """Close the socket of the journal."""
        self._journal.close()
        super().close()


def make_log_handler(daemon: str, **fields: str) -> LogHandler:
    """Return the log handler of a daemon.

    It writes to the journal if standard error is connected to it, otherwise to standard error.

    Args:
        daemon: the name of the daemon in the journal, such as ``pliant-server``.
        fields: further fields of each record in the journal, by names in upper case.
    """
    if not systemd_journal.is_journal():
        return LogHandler()
    return JournalHandler(systemd_journal.Journal({"SYSLOG_IDENTIFIER": daemon, **fields}))


def use_json(handler: LogHandler, **fields: str) -> bool:
    """Make a handler write JSON, unless it writes to the journal, which has fields of its own.

    Args:
        handler: the handler of the daemon.
        fields: fields of every object.

    Returns:
        Whether it writes JSON.
    """
    if isinstance(handler, JournalHandler):
        return False
    handler.setFormatter(JsonFormatter(fields))
    return True


def _priority(level: int) -> int:
    found = (priority for least, priority in _PRIORITIES if level >= least)
    return next(found, systemd_journal.DEBUG)


def _fields(record: logging.LogRecord) -> Mapping[str, str]:
    return {
        "LOGGER": record.name,
        "THREAD_NAME": record.threadName or "",
        "CODE_FILE": record.pathname,
        "CODE_LINE": str(record.lineno),
        "CODE_FUNC": record.funcName or "",
    }

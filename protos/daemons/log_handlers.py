"""A logging handler for a file that may be renamed while the daemon writes."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from pliant.protos.daemons.log_files import LogFile


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error, and opens its file again if that was renamed."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.file = LogFile()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self.file.reopen_if_moved()
        super().emit(record)

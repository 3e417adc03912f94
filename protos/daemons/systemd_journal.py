"""Records for the journal of systemd, with fields by which ``journalctl FIELD=value`` can search.

The format is that of the journal's native protocol. The root helper uses this module, so only the
standard library is imported.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping

SOCKET = "/run/systemd/journal/socket"
#: Priorities of syslog, which the journal uses.
CRITICAL, ERROR, WARNING, INFO, DEBUG = 2, 3, 4, 6, 7
#: A longer value is cut, so that a record fits into a datagram.
MAX_VALUE_BYTES = 48 << 10


def is_journal(descriptor: int = 2, stream: str | None = None) -> bool:
    """Return whether a descriptor, such as standard error, is connected to the journal.

    Args:
        descriptor: an open file.
        stream: device and inode of the journal's stream; None for the value of the variable
            ``JOURNAL_STREAM``.
    """
    text = os.environ.get("JOURNAL_STREAM", "") if stream is None else stream
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return text == f"{found.st_dev}:{found.st_ino}"


class Journal:
    """Sends records to the journal.

    Args:
        fields: the fields that each record has, by their names in upper case.
        path: the path of the journal's socket.
    """

    def __init__(self, fields: Mapping[str, str], path: str = SOCKET) -> None:
        self._fields, self._path = dict(fields), path
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_UNIX, kind)

    def send(self, message: str, priority: int, fields: Mapping[str, str] | None = None) -> None:
        """Send a record to the journal.

        Raises:
            OSError: the journal does not accept it.
        """
        record = {"MESSAGE": message, "PRIORITY": str(priority), **self._fields, **(fields or {})}
        self._socket.sendto(encode_fields(record), self._path)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def encode_fields(fields: Mapping[str, str]) -> bytes:
    """Return a record in the journal's native protocol."""
    return b"".join(_encode(name, value) for name, value in fields.items())


def _encode(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "backslashreplace")[:MAX_VALUE_BYTES]
    if b"\n" not in data:
        return b"%s=%s\n" % (name.encode("ascii"), data)
    return b"%s\n%s%s\n" % (name.encode("ascii"), struct.pack("<Q", len(data)), data)

"""The nonces of signed orders that a node has carried out, on disk.

An order is carried out at most once, even if the node crashes, because its nonce is on the disk
before the order is carried out. Nonces of orders that have expired are removed, so the lifetime of
orders limits the size of the file. Several processes and threads may use a file at the same time.

The file is a sequence of records of one size, each with a checksum. The first record is the
*floor*, a time: nonces of orders that expired before it may have been removed, so such orders are
refused. Without the floor, an order could be carried out again if the clock of the host is set
back.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path

from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.daemons.private_paths import open_private_file
from pliant.protos.identity.identity_errors import ReplayedOrderError, StoredIdentityError
from pliant.protos.identity.stored_files import lock_for
from pliant.protos.signed_orders.signature_and_validity import NONCE_BYTES

_CONTENT = struct.Struct(f">{NONCE_BYTES}sd")
_CHECKSUM = struct.Struct(">I")
_RECORD_BYTES = _CONTENT.size + _CHECKSUM.size
_FLOOR = bytes(NONCE_BYTES)
#: The file is written again when it has so many records and half of them have expired.
_MIN_RECORDS_TO_COMPACT = 1024


class NonceWindow:
    """Remembers the nonces of launch orders, so that no order is carried out twice."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def use(self, nonce: bytes, *, keep_until: float, now: float) -> None:
        """Record on the disk that a nonce is used.

        Args:
            nonce: the nonce of a verified order.
            keep_until: the time from which every node refuses the order as expired, in seconds
                since the epoch.
            now: the present time, in seconds since the epoch.

        Raises:
            ReplayedOrderError: the nonce was used before, or is so old that it may have been.
            StoredIdentityError: the file is damaged. No order may be carried out.
            UntrustedPathError, OSError: the file cannot be used. No order may be carried out.
        """
        if len(nonce) != NONCE_BYTES or nonce == _FLOOR:
            raise ValueError(f"expected a nonce of {NONCE_BYTES} random bytes")
        with lock_for(self._path):
            file = self._open()
            try:
                floor, used = self._read(file)
                if nonce in used:
                    raise ReplayedOrderError("the launch order was carried out before (same nonce)")
                if keep_until <= floor:
                    raise ReplayedOrderError(
                        f"the launch order is too old: it ended {floor - keep_until:.0f} s before "
                        "the oldest one that this node remembers"
                    )
                used[nonce] = keep_until
                expired = [each for each, until in used.items() if until <= now]
                if len(used) >= _MIN_RECORDS_TO_COMPACT and 2 * len(expired) >= len(used):
                    floor = max(floor, *(used.pop(each) for each in expired))
                    self._replace(floor, used)
                else:
                    _append(file, len(used) * _RECORD_BYTES, _record(nonce, keep_until))
            finally:
                os.close(file)

    def _open(self) -> int:
        try:
            return open_private_file(self._path, os.O_RDWR)
        except FileNotFoundError:
            # The clock may be wrong, so a new file does not refuse what ended before now.
            write_private(self._path, _record(_FLOOR, 0.0))
            return open_private_file(self._path, os.O_RDWR)

    def _read(self, file: int) -> tuple[float, dict[bytes, float]]:
        """Return a time, and the used nonces with the time until which each is kept.

        The first value is the latest expiry of all dropped nonces. Orders that expire by then are
        refused. If the write of the last record was interrupted, this record is left out: `use` did
        not return, so its order was not executed.
        """
        content = os.pread(file, os.fstat(file).st_size, 0)
        whole = len(content) - len(content) % _RECORD_BYTES
        records = [
            _parse(content[at : at + _RECORD_BYTES]) for at in range(0, whole, _RECORD_BYTES)
        ]
        if len(records) > 1 and whole == len(content) and records[-1] is None:
            records.pop()
        known = [each for each in records if each is not None]
        if len(known) != len(records) or not known or known[0][0] != _FLOOR:
            raise StoredIdentityError(
                f"{self._path} is damaged: no launch order is carried out; stop the programs that "
                "use it, wait until the orders of today have expired (10 minutes), and remove it"
            )
        return known[0][1], dict(known[1:])

    def _replace(self, floor: float, used: dict[bytes, float]) -> None:
        records = [_record(_FLOOR, floor), *(_record(*each) for each in used.items())]
        write_private(self._path, b"".join(records))


def _record(nonce: bytes, keep_until: float) -> bytes:
    content = _CONTENT.pack(nonce, keep_until)
    return content + _CHECKSUM.pack(zlib.crc32(content))


def _parse(record: bytes) -> tuple[bytes, float] | None:
    """Return the nonce and the time of a record; None if the record is damaged."""
    content = record[: _CONTENT.size]
    if record[_CONTENT.size :] != _CHECKSUM.pack(zlib.crc32(content)):
        return None
    nonce, keep_until = _CONTENT.unpack(content)
    return nonce, keep_until


def _append(file: int, at: int, record: bytes) -> None:
    """Write a record to the disk at the offset ``at``, over the rest of an interrupted write."""
    if os.pwrite(file, record, at) != len(record):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file)

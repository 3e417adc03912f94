"""Messages between the executor and its workers: pickles in frames, of any size.

A message is a sequence of frames, each with its length before it, and a mark at the end. A pickle
is written into frames while it is made, and read while it arrives. So a large result is in memory
once on each side, and never a second time as one message. A message whose pickle fails half-way is
marked as aborted, and the connection stays usable.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import struct
from typing import Any

_HEADER = struct.Struct(">I")
#: Marks in the place of the length of a frame.
_END, _ABORTED, _EXIT = 0, 0xFFFF_FFFF, 0xFFFF_FFFE
#: Bytes of a pickle that are collected before they are sent.
_BUFFER_BYTES = 1 << 16
#: The largest frame. Larger pieces are divided.
_MAX_FRAME = 1 << 30
#: The longest text before the first pickle: it is read into memory as a whole.
_MAX_TEXT = 1 << 20

#: A host that is gone is noticed after 10 s of silence and 4 probes, 5 s apart, also by a side that
#: only waits.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


class PicklingFailure(Exception):
    """An object cannot be pickled or unpickled; its ``__cause__`` is the reason.

    The connection is still usable.
    """


class ExitRequested(Exception):
    """Raised by `Wire.receive` in a worker when the executor has told the worker to exit."""


def set_socket_options(link: socket.socket) -> None:
    """Set options of a TCP socket: detect a host that is gone, and send small messages at once."""
    if link.family != socket.AF_UNIX:
        for level, option, value in _KEEPALIVE:
            link.setsockopt(level, option, value)


class Wire:
    """One end of a connection. Only one thread uses it at a time, but any may `interrupt` it."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._buffer = b""

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._link.fileno()

    def interrupt(self) -> None:
        """End the connection; a thread that waits for a message on it gets an error."""
        with contextlib.suppress(OSError):
            # The method of `SSLSocket` would go on without encryption in the thread that waits.
            socket.socket.shutdown(self._link, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._link.close()

    # ---------------------------------------------------------------- texts

    def send_text(self, fields: dict[str, Any]) -> None:
        """Send a message as JSON, which the receiver can read without unpickling anything."""
        body = json.dumps(fields).encode("ascii")
        self._link.sendall(_HEADER.pack(len(body)) + body)

    def receive_text(self) -> dict[str, Any]:
        """Return a message that was sent as JSON, without unpickling anything.

        Raises:
            OSError: the connection ended, or the message is malformed.
        """
        (size,) = _HEADER.unpack(self.read(_HEADER.size))
        if size > _MAX_TEXT:
            raise ConnectionError(f"a message of {size} bytes is too long")
        try:
            fields = json.loads(self.read(size))
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise ConnectionError("the message is malformed")
        return fields

    # ---------------------------------------------------------------- pickles

    def send(self, value: object) -> None:
        """Send an object.

        Raises:
            PicklingFailure: the object cannot be pickled; the receiver drops the unfinished
                message.
            OSError: the connection ended.
        """
        from cloudpickle import Pickler

        writer = _Writer(self._link)
        try:
            Pickler(writer, protocol=5).dump(value)
        except Exception as error:
            if writer.has_failed:
                raise
            if writer.has_sent:
                self._link.sendall(_HEADER.pack(_ABORTED))
            raise PicklingFailure(str(error)) from error
        writer.finish()

    def send_exit(self) -> None:
        """Tell the worker to exit."""
        self._link.sendall(_HEADER.pack(_EXIT))

    def receive(self) -> Any:
        """Return the next object that was sent; messages that the sender has aborted are skipped.

        Raises:
            PicklingFailure: the object cannot be unpickled.
            ExitRequested: the executor has told this worker to exit.
            OSError: the connection ended.
        """
        while True:
            reader = _Reader(self)
            try:
                return pickle.load(reader)
            except _AbortedMessage:
                continue
            except Exception as error:
                if reader.has_failed or isinstance(error, ExitRequested):
                    raise
                if not reader.drain():
                    continue
                raise PicklingFailure(f"{type(error).__name__}: {error}") from error
            finally:
                if reader.is_open:
                    reader.drain()

    # ---------------------------------------------------------------- bytes

    def read(self, size: int) -> bytes:
        """Return exactly ``size`` bytes of the connection.

        Raises:
            OSError: the connection ended.
        """
        if len(self._buffer) >= size:
            found, self._buffer = self._buffer[:size], self._buffer[size:]
            return found
        whole = bytearray(size)
        self.read_into(memoryview(whole))
        return bytes(whole) if size <= _BUFFER_BYTES else whole  # type: ignore[return-value]

    def read_into(self, target: memoryview) -> None:
        """Fill a buffer with bytes of the connection.

        Raises:
            OSError: the connection ended.
        """
        filled = min(len(self._buffer), len(target))
        target[:filled] = self._buffer[:filled]
        self._buffer = self._buffer[filled:]
        while filled < len(target):
            if len(target) - filled >= _BUFFER_BYTES:
                got = self._link.recv_into(target[filled:])
            else:
                data = self._link.recv(_BUFFER_BYTES)
                got = min(len(data), len(target) - filled)
                target[filled : filled + got] = data[:got]
                self._buffer = data[got:]
            if not got:
                raise ConnectionResetError("the connection was closed")
            filled += got


class _AbortedMessage(Exception):
    """The sender began a message but could not complete it."""


class _Writer:
    """A file object that sends what ``pickle`` writes to it, in frames."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._parts = bytearray()
        self.has_sent = self.has_failed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view) < _BUFFER_BYTES:
            self._parts += view
            if len(self._parts) >= _BUFFER_BYTES:
                self._flush()
        else:
            self._flush()
            for start in range(0, len(view), _MAX_FRAME):
                self._send_frame(view[start : start + _MAX_FRAME])
        return len(view)

    def finish(self) -> None:
        if self._parts:
            self._send(_HEADER.pack(len(self._parts)) + self._parts + _HEADER.pack(_END))
        else:
            self._send(_HEADER.pack(_END))

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, bytearray()
            self._send_frame(memoryview(parts))

    def _send_frame(self, frame: memoryview) -> None:
        self._send(_HEADER.pack(len(frame)))
        self._send(frame)

    def _send(self, data: Any) -> None:
        self.has_sent = True
        try:
            self._link.sendall(data)
        except BaseException:
            self.has_failed = True
            raise


class _Reader:
    """A file object that returns the bytes of received frames, for ``pickle`` to read."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._left = 0
        self.is_open, self.has_failed = True, False

    def read(self, size: int) -> bytes:
        if self._left >= size:
            data = self._call(size)
            self._left -= size
            return data
        whole = bytearray(size)
        return bytes(whole[: self.readinto(whole)])

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        filled = 0
        while filled < len(view):
            if not self._left and not self._next_frame():
                break
            size = min(self._left, len(view) - filled)
            self._fill(view[filled : filled + size])
            self._left -= size
            filled += size
        return filled

    def readline(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n") and (one := self.read(1)):
            line += one
        return bytes(line)

    def drain(self) -> bool:
        """Skip the rest of the message; return whether the sender has completed it."""
        scratch = bytearray(_BUFFER_BYTES)
        try:
            while self.is_open and not self.has_failed:
                self.readinto(scratch)
        except _AbortedMessage:
            return False
        return True

    def _next_frame(self) -> bool:
        """Begin the next frame; return False at the end of the message."""
        if not self.is_open:
            return False
        (mark,) = _HEADER.unpack(self._call(_HEADER.size))
        self.is_open = mark not in (_END, _ABORTED, _EXIT)
        if mark == _ABORTED:
            raise _AbortedMessage
        if mark == _EXIT:
            raise ExitRequested
        self._left = mark if self.is_open else 0
        return self.is_open

    def _call(self, size: int) -> bytes:
        try:
            return self._wire.read(size)
        except BaseException:
            self.has_failed, self.is_open = True, False
            raise

    def _fill(self, target: memoryview) -> None:
        try:
            self._wire.read_into(target)
        except BaseException:
            self.has_failed, self.is_open = True, False
            raise

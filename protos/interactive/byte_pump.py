"""Pass bytes between local descriptors and a connection, in both directions, in one thread.

Both ends of the connection of an interactive job do this. ``pliant run`` passes bytes between its
input or terminal and the connection. The relay, a process on the node, passes bytes between the
connection and the program.

Each frame has a kind (1 byte), the length of its content (4 bytes, big-endian) and the content.

If the bytes that wait to be sent exceed a limit, a side reads no more from its source. If the bytes
that wait to be written exceed it, the side reads no more from the connection. So memory is limited,
and a program that does not read stops the source.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

#: Kinds of frames: bytes, the end of the input, the size of the terminal (rows and columns).
DATA, END, SIZE = b"d", b"e", b"s"

_HEADER = struct.Struct("!cI")
_SIZE = struct.Struct("!HH")
#: Longest content of a frame. A TLS record has 16 KB at most, so a read of this length leaves
#: nothing in the TLS layer, which `poll` would not see.
_MAX_FRAME = 1 << 16
#: Maximum number of bytes that wait in each direction.
_MAX_WAITING = 1 << 18
#: Milliseconds until a source that may not be read now is looked at again.
_RETRY_MS = 200

_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class FrameError(ValueError):
    """The other side has sent bytes that are not a frame."""


class BytePump:
    """Passes bytes between two descriptors and a connection until the connection or program ends.

    If source and sink are the same descriptor, it is the terminal of a program, and the pump ends
    when the program ends. If the connection ends first, waiting input is not written any more.
    """

    def __init__(
        self,
        link: socket.socket,
        source: int | None,
        sink: int | None,
        *,
        may_read: Callable[[], bool] = lambda: True,
        on_size: Callable[[int, int], None] | None = None,
    ) -> None:
        """Prepare to pass bytes on.

        Args:
            link: the connection; it becomes non-blocking.
            source: descriptor whose bytes are sent over the connection; None if there is none.
            sink: descriptor to which received bytes are written; None if there is none.
            may_read: returns whether the source may be read now.
            on_size: called with the rows and columns of the terminal that the other side sends.
        """
        link.setblocking(False)
        self._link, self._source, self._sink = link, source, sink
        self._is_terminal = source is not None and source == sink
        self._may_read, self._on_size = may_read, on_size
        self._received, self._incoming, self._outgoing = bytearray(), bytearray(), bytearray()
        #: Whether the other side sends no more input, and whether the connection has ended.
        self._input_ended = self._link_ended = False
        self._awake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._new_size: tuple[int, int] | None = None

    def resize(self, rows: int, columns: int) -> None:
        """Send the size of the terminal; a signal handler may call this while the pump runs."""
        self._new_size = rows, columns
        with suppress(OSError):  # the pipe is full, so the pump wakes up anyway
            os.write(self._waker, b"x")

    def run(self) -> None:
        """Pass bytes on until the connection or the program ends and its last bytes are passed on.

        Raises:
            FrameError: the other side has sent bytes that are not a frame.
            OSError: the sink cannot be written.
        """
        try:
            while not self._is_done():
                self._round()
        finally:
            os.close(self._awake)
            os.close(self._waker)

    def _is_done(self) -> bool:
        if self._is_terminal and self._source is None:
            return self._link_ended or not self._outgoing
        nothing_left = self._input_ended and not self._incoming
        return nothing_left and (self._source is None or self._link_ended)

    def _round(self) -> None:
        """Wait until a descriptor is readable or writable, and read or write once."""
        reads = self._source is not None and len(self._outgoing) < _MAX_WAITING
        may_read = reads and not self._link_ended and self._may_read()
        masks = {self._awake: select.POLLIN}
        if not self._link_ended:
            takes = len(self._incoming) < _MAX_WAITING  # POLLIN also reports the end
            masks[self._link.fileno()] = takes * select.POLLIN | (
                bool(self._outgoing) * select.POLLOUT
            )
        if may_read and self._source is not None:
            masks[self._source] = select.POLLIN
        if self._sink is not None and (self._incoming or not self._is_terminal):
            # Also without anything to write, because the program may close its input.
            masks[self._sink] = masks.get(self._sink, 0) | bool(self._incoming) * select.POLLOUT
        poll = select.poll()
        for descriptor, mask in masks.items():
            # The end of a connection that may not be read now is noticed later.
            if mask or descriptor == self._sink:
                poll.register(descriptor, mask)
        ready = dict(poll.poll(_RETRY_MS if reads and not may_read else None))
        if self._awake in ready:
            self._take_size()
        if self._source is not None and may_read and self._source in ready:
            self._read(self._source)
        if self._sink is not None and (events := ready.get(self._sink, 0)):
            if events & select.POLLERR and not self._is_terminal:
                raise BrokenPipeError  # nobody reads it any more
            self._write(self._sink)
        if events := ready.get(self._link.fileno(), 0):
            if events & ~select.POLLOUT:
                self._receive()
            self._send()

    # ------------------------------------------------------------------ to the other side

    def _take_size(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._awake, _MAX_FRAME)
        if self._new_size is not None:
            self._queue(SIZE, _SIZE.pack(*self._new_size))

    def _read(self, source: int) -> None:
        try:
            data = os.read(source, _MAX_FRAME)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # no process has the terminal open any more
            data = b""
        self._queue(DATA if data else END, data)
        if not data:
            self._source = None

    def _queue(self, kind: bytes, content: bytes) -> None:
        if not self._link_ended:
            self._outgoing += _HEADER.pack(kind, len(content)) + content
            self._send()

    def _send(self) -> None:
        if self._outgoing and not self._link_ended:
            try:
                sent = self._link.send(self._outgoing)
            except _NOT_NOW:
                return
            except OSError:
                self._end_link()
            else:
                del self._outgoing[:sent]

    # ------------------------------------------------------------------ from the other side

    def _receive(self) -> None:
        try:
            data = self._link.recv(_MAX_FRAME)
        except _NOT_NOW:
            return
        except OSError:
            data = b""
        if not data:
            self._end_link()
            return
        self._received += data
        for kind, content in self._frames():
            match kind:
                case b"d" if self._sink is not None:
                    self._incoming += content
                case b"e":
                    self._input_ended = True
                case b"s" if self._on_size is not None and len(content) == _SIZE.size:
                    self._on_size(*_SIZE.unpack(content))

    def _end_link(self) -> None:
        self._input_ended = self._link_ended = True
        if self._is_terminal:
            self._source = None  # the program gets SIGHUP when the terminal is closed

    def _frames(self) -> Iterator[tuple[bytes, bytes]]:
        while len(self._received) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._received)
            if length > _MAX_FRAME or kind not in (DATA, END, SIZE):
                raise FrameError("the other side sends something that is no frame")
            end = _HEADER.size + length
            if len(self._received) < end:
                return
            content = bytes(self._received[_HEADER.size : end])
            del self._received[:end]
            yield kind, content

    def _write(self, sink: int) -> None:
        try:
            written = os.write(sink, self._incoming[:_MAX_FRAME])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            if not self._is_terminal:
                raise
            self._incoming.clear()  # no process has the terminal open any more
        else:
            del self._incoming[:written]

"""An event loop for processes that fork: one selector for sockets, signals and timers."""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_CHUNK = 1 << 16

#: Bytes that may wait for a peer that does not read; beyond that the connection is closed.
_MAX_BACKLOG = 1 << 26


class ScheduledCall:
    """A call at a later time, unless it is cancelled."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Prevent the call; does nothing if the function has been called already."""
        self.call = None


class EventLoop:
    """Waits in one selector, and calls the handlers of sockets, signals and timers."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._count = itertools.count()
        self._signals: dict[int, Callable[[], None]] = {}
        self._wakeup_sockets: tuple[socket.socket, ...] = ()
        self._running = True

    def after(self, seconds: float, call: Callable[[], None]) -> ScheduledCall:
        """Call a function after ``seconds``; return an object that can cancel the call."""
        timer = ScheduledCall(time.monotonic() + seconds, call)
        heapq.heappush(self._timers, (timer.due, next(self._count), timer))
        return timer

    def on_signals(self, calls: dict[int, Callable[[], None]]) -> None:
        """Register functions to call in the loop when signals arrive."""
        self._signals = calls
        awake, waker = self._wakeup_sockets = socket.socketpair()
        awake.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self.selector.register(awake, _READ, lambda _: self._handle_signals(awake))
        for number in calls:
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Run until `stop` is called."""
        while self._running:
            for key, mask in self.selector.select(self._until_next()):
                key.data(mask)
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                if timer.call is not None:
                    timer.call()

    def stop(self) -> None:
        """Make `run` return after the present round."""
        self._running = False

    def close(self) -> None:
        """Close the loop's descriptors; signals are ignored from then on."""
        signal.set_wakeup_fd(-1)
        for sock in self._wakeup_sockets:
            sock.close()
        self.selector.close()

    def _until_next(self) -> float | None:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _handle_signals(self, awake: socket.socket) -> None:
        for number in set(awake.recv(_CHUNK)):
            if number in self._signals:
                self._signals[number]()


class SocketChannel:
    """One end of a stream socket; sending never blocks, and received data are passed on at once."""

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        on_data: Callable[[bytes], None],
        on_end: Callable[[], None] | None = None,
    ) -> None:
        sock.setblocking(False)
        self._loop = loop
        self._sock: socket.socket | None = sock
        self._on_data = on_data
        self._on_end = on_end
        self._backlog = bytearray()
        loop.selector.register(sock, _READ, self._ready)

    @property
    def is_open(self) -> bool:
        """Return whether the connection is open: not closed here, and not by the other process."""
        return self._sock is not None

    @property
    def backlog(self) -> int:
        """Return how many bytes wait to be sent."""
        return len(self._backlog) if self._sock is not None else 0

    def send(self, data: bytes) -> None:
        """Send as many bytes as possible now, and the rest when the socket accepts more."""
        if self._sock is None:
            return
        self._backlog += data
        if len(self._backlog) > _MAX_BACKLOG:
            self._end()
        elif len(self._backlog) == len(data):
            self._flush()

    def drain(self) -> None:
        """Receive all data that have already arrived, and pass them to the handler."""
        while self._sock is not None and self._receive():
            pass

    def close(self) -> None:
        """Close this end without calling `on_end`."""
        if self._sock is not None:
            self._loop.selector.unregister(self._sock)
            self._sock.close()
            self._sock = None

    def finish(self, seconds: float) -> None:
        """Send the remaining data, for at most ``seconds``, and close the socket."""
        if self._sock is not None and self._backlog:
            self._sock.settimeout(seconds)
            try:
                self._sock.sendall(self._backlog)
            except OSError:
                pass  # the next controller reads it from the spool
        self.close()

    def _ready(self, mask: int) -> None:
        if mask & _WRITE:
            self._flush()
        if mask & _READ and self._sock is not None:
            self._receive()

    def _receive(self) -> bool:
        assert self._sock is not None
        try:
            data = self._sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self._end()
        return bool(data)

    def _flush(self) -> None:
        assert self._sock is not None
        try:
            sent = self._sock.send(self._backlog)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._end()
            return
        del self._backlog[:sent]
        events = _READ | _WRITE if self._backlog else _READ
        if self._loop.selector.get_key(self._sock).events != events:
            self._loop.selector.modify(self._sock, events, self._ready)

    def _end(self) -> None:
        self.close()
        if self._on_end is not None:
            self._on_end()


class LineSplitter:
    """Splits a stream of bytes into lines."""

    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self._on_line = on_line
        self._rest = bytearray()

    def __call__(self, data: bytes) -> None:
        """Add received bytes; pass each line that they complete to the handler."""
        self._rest += data
        if b"\n" in data:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                self._on_line(line)


def connect_unix(directory: int, name: str) -> socket.socket:
    """Return a connection to a unix socket in the open folder ``directory``.

    The full path of the socket may be too long for an address.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(f"/proc/self/fd/{directory}/{name}")
    except OSError:
        sock.close()
        raise
    return sock


def open_directory(path: str | os.PathLike[str]) -> int:
    """Open a folder, and return its descriptor."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

"""The control socket between a rank and the shim that started it: JSON objects, one a line."""

import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Protocol


class LineSigner(Protocol):
    """Signs the lines of one connection and checks those that arrive (see `joining.proof`)."""

    lock: threading.Lock

    def sign(self, line: bytes) -> bytes:
        """Return what to send for a line; the caller holds the lock until it is sent."""

    def check(self, line: bytes) -> bytes:
        """Return the line in what has arrived, or raise ValueError."""


class JsonLines:
    """A stream socket that carries JSON lines."""

    def __init__(self, sock: socket.socket, limit: int | None = None) -> None:
        """Wrap a socket; closing it closes this.

        Args:
            sock: the stream.
            limit: the longest line that is taken, in bytes; None: whatever comes, because the
                other side is trusted.
        """
        self.sock = sock
        self.limit = limit
        #: Signs and checks all lines from now on; None: they are sent as they are.
        self.signer: LineSigner | None = None
        self._buffer = bytearray()

    def send(self, **message: Any) -> None:
        """Send one object.

        Raises:
            OSError: the other side is gone.
        """
        line = json.dumps(message).encode()
        if self.signer is None:
            self.sock.sendall(line + b"\n")
            return
        with self.signer.lock:
            self.sock.sendall(self.signer.sign(line) + b"\n")

    def take(self) -> dict[str, Any] | None:
        """The next object that has arrived completely, or None; reads nothing.

        Raises:
            ValueError: what has arrived is not an object, is longer than the limit, or is not what
                the other side has signed.
        """
        end = self._buffer.find(b"\n")
        length = len(self._buffer) if end < 0 else end
        if self.limit is not None and length > self.limit:
            raise ValueError(f"a line of more than {self.limit} bytes")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return _parse(line if self.signer is None else self.signer.check(line))

    def read(self) -> bool:
        """Read what is there, waiting for something; False: the other side is gone."""
        try:
            # Who takes what it has read never keeps more than two lines.
            data = self.sock.recv(65536 if self.limit is None else min(65536, self.limit + 1))
        except (TimeoutError, InterruptedError, BlockingIOError):
            return True
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def fileno(self) -> int:
        """For select."""
        return self.sock.fileno()

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def _parse(line: bytes) -> dict[str, Any]:
    """The object in a line.

    Raises:
        ValueError: there is none.
    """
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("too deep for JSON") from None
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message


def open_control(descriptor: int) -> JsonLines:
    """Take over the inherited descriptor; programs that this process starts do not get it."""
    os.set_inheritable(descriptor, False)
    return JsonLines(socket.socket(fileno=descriptor))


def serve(control: JsonLines, handle: Callable[[dict[str, Any]], None]) -> threading.Thread:
    """Handle orders in a daemon thread that sleeps in a read until the shim is gone.

    An order that fails is told on stderr, and the next one is handled.
    """

    def run() -> None:
        while True:
            try:
                message = control.take()
                if message is not None:
                    handle(message)
                elif not control.read():
                    return
            except Exception:
                print("pliant: an order of the node's controller failed:", file=sys.stderr)
                traceback.print_exc()

    thread = threading.Thread(target=run, name="pliant-control", daemon=True)
    thread.start()
    return thread

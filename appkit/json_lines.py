"""JSON objects over a socket, one per line: the control socket of a rank, and join connections."""

import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Protocol


class LineSigner(Protocol):
    """Signs the lines that one connection sends, and checks the signatures of arriving lines."""

    lock: threading.Lock

    def sign(self, line: bytes) -> bytes:
        """Return the line with its signature.

        The caller must hold ``lock`` until the line is sent, so that lines are sent in the order in
        which they were signed.
        """

    def check(self, line: bytes) -> bytes:
        """Return an arrived line without its signature.

        Raises:
            ValueError: the signature is wrong.
        """


class JsonLines:
    """A stream socket that carries JSON lines."""

    def __init__(self, sock: socket.socket, limit: int | None = None) -> None:
        """Send and receive JSON lines on a socket; `close` closes the socket.

        Args:
            sock: a connected stream socket.
            limit: longest line that is accepted, in bytes; None for no limit, if the other side is
                trusted.
        """
        self.sock = sock
        self.limit = limit
        #: Signs and checks all lines; None if they are not signed.
        self.signer: LineSigner | None = None
        self._buffer = bytearray()

    def send(self, **message: Any) -> None:
        """Send one JSON object, given as keyword arguments.

        Raises:
            OSError: the connection is broken.
        """
        line = json.dumps(message).encode()
        if self.signer is None:
            self.sock.sendall(line + b"\n")
            return
        with self.signer.lock:
            self.sock.sendall(self.signer.sign(line) + b"\n")

    def take(self) -> dict[str, Any] | None:
        """Return the next complete object that `read` has received; None if there is none.

        Raises:
            ValueError: the line is not an object, is longer than the limit, or has a wrong
                signature.
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
        """Wait for bytes and read them, for `take`.

        Returns:
            False if the other side has closed; otherwise True, even if no bytes arrived within the
            timeout of the socket.
        """
        try:
            # Callers take all lines after each read, so the buffer never exceeds two lines.
            data = self.sock.recv(65536 if self.limit is None else min(65536, self.limit + 1))
        except (TimeoutError, InterruptedError, BlockingIOError):
            return True
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def fileno(self) -> int:
        """Return the file descriptor, for ``select`` and ``poll``."""
        return self.sock.fileno()

    def close(self) -> None:
        """Close the socket; the peer then reads the end of the stream."""
        self.sock.close()


def _parse(line: bytes) -> dict[str, Any]:
    """Return the object in a line.

    Raises:
        ValueError: the line is not a JSON object.
    """
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("too deep for JSON") from None
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message


def open_control(descriptor: int) -> JsonLines:
    """Return the control socket, which connects this rank to its shim, as `JsonLines`.

    The rank has inherited the socket as ``descriptor``. Its own child processes do not inherit it.
    """
    os.set_inheritable(descriptor, False)
    return JsonLines(socket.socket(fileno=descriptor))


def serve(control: JsonLines, handle: Callable[[dict[str, Any]], None]) -> threading.Thread:
    """Start and return a daemon thread that passes each order of the shim to ``handle``.

    The shim is the process that supervises this rank; the thread ends when the shim does. An
    exception in ``handle`` is printed on stderr, and the next order is handled.
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

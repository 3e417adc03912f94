"""The control socket between a rank and the shim that started it: JSON objects, one a line."""

import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Any


class Lines:
    """A stream socket that carries JSON lines."""

    def __init__(self, sock: socket.socket) -> None:
        """Wrap a socket; closing it closes this."""
        self.sock = sock
        self._buffer = bytearray()

    def send(self, **message: Any) -> None:
        """Send one object.

        Raises:
            OSError: the other side is gone.
        """
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def take(self) -> dict[str, Any] | None:
        """The next object that has arrived completely, or None; reads nothing."""
        end = self._buffer.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        message: dict[str, Any] = json.loads(line)
        return message

    def read(self) -> bool:
        """Read what is there, waiting for something; False: the other side is gone."""
        try:
            data = self.sock.recv(65536)
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


def open_control(descriptor: int) -> Lines:
    """Take over the inherited descriptor; programs that this process starts do not get it."""
    os.set_inheritable(descriptor, False)
    return Lines(socket.socket(fileno=descriptor))


def serve(control: Lines, handle: Callable[[dict[str, Any]], None]) -> threading.Thread:
    """Handle orders in a daemon thread that sleeps in a read until the shim is gone."""

    def run() -> None:
        while True:
            message = control.take()
            if message is not None:
                handle(message)
            elif not control.read():
                return

    thread = threading.Thread(target=run, name="pliant-control", daemon=True)
    thread.start()
    return thread

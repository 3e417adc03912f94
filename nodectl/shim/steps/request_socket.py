"""The socket on which the processes of a script request steps."""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from pliant.nodectl.host.log_to_stderr import write_line
from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.world_folder import STEP_SOCKET, WorldFolder
from pliant.protos.daemons.peer_credentials import peer_uid

#: The longest request in bytes: arguments and environment as JSON.
_MAX_REQUEST = 1 << 23
#: Requests that are being received, and descriptors in one of them.
_MAX_PENDING = 64
_MAX_DESCRIPTORS = 3
_CHUNK = 1 << 16

#: Takes a request and its descriptors; returns the function that takes the connection.
OnRequest = Callable[[dict[str, Any], list[int]], Callable[[socket.socket], None]]


class RequestSocket:
    """Accepts connections of this user, and receives one request with descriptors on each."""

    def __init__(self, loop: EventLoop, spool: WorldFolder, on_request: OnRequest) -> None:
        self._loop, self._on_request = loop, on_request
        self._pending: dict[socket.socket, list[int]] = {}
        self._path = spool.directory / STEP_SOCKET
        self._listener: socket.socket | None = None
        try:
            self._listener = self._listen()
        except OSError as error:
            write_line(f"scripts cannot start steps: {error}")

    def _listen(self) -> socket.socket:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Named from its open folder: the whole path may be longer than allowed.
            listener.bind(f"/proc/self/fd/{folder}/{STEP_SOCKET}")
            listener.listen(_MAX_PENDING)
        except OSError:
            listener.close()
            raise
        finally:
            os.close(folder)
        listener.setblocking(False)
        self._loop.selector.register(listener, selectors.EVENT_READ, self._accept)
        return listener

    def close(self) -> None:
        """Close the socket and all connections without a complete request."""
        for client in list(self._pending):
            self._drop(client)
        if self._listener is not None:
            self._loop.selector.unregister(self._listener)
            self._listener.close()
            self._path.unlink(missing_ok=True)

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        try:
            client, _address = self._listener.accept()
        except OSError:
            return  # it has gone, or there is no descriptor; the client sees its end
        if peer_uid(client) != os.getuid() or len(self._pending) >= _MAX_PENDING:
            client.close()
            return
        client.setblocking(False)
        self._pending[client] = []
        call = partial(self._receive, client, bytearray())
        self._loop.selector.register(client, selectors.EVENT_READ, call)

    def _receive(self, client: socket.socket, buffer: bytearray, _: int) -> None:
        try:
            data, handles, _flags, _address = socket.recv_fds(client, _CHUNK, _MAX_DESCRIPTORS)
        except BlockingIOError:
            return
        except OSError:
            data, handles = b"", []
        self._pending[client] += handles
        buffer += data
        if not data or len(buffer) > _MAX_REQUEST or len(self._pending[client]) > _MAX_DESCRIPTORS:
            self._drop(client)
        elif buffer.endswith(b"\n"):  # a client sends one request, and waits for its answer
            self._take(client, bytes(buffer))

    def _take(self, client: socket.socket, line: bytes) -> None:
        handles = self._pending[client]
        for handle in handles:
            os.set_inheritable(handle, False)
        try:
            take = self._on_request(json.loads(line), handles)
        except (ValueError, TypeError, KeyError, AttributeError, OSError):
            self._drop(client)  # its request is wrong, or there is no descriptor to read files
            return
        del self._pending[client]
        self._loop.selector.unregister(client)
        take(client)

    def _drop(self, client: socket.socket) -> None:
        for handle in self._pending.pop(client):
            os.close(handle)
        self._loop.selector.unregister(client)
        client.close()

"""The unix socket on which shims connect to the controller."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pliant.protos.daemons.peer_credentials import peer_uid
from pliant.protos.daemons.sockets import take_connections

logger = logging.getLogger("pliant.nodectl")

#: The longest line a shim sends: the pairs of a large world.
_MAX_LINE = 1 << 26

_BACKLOG = 1024

OnMessage = Callable[[dict[str, Any], asyncio.StreamWriter], None]

#: Seconds between two warnings about refused connections.
_WARN_INTERVAL_S = 10.0
#: Pause after each message of a user's shim. It limits what a flood costs, and lets other
#: connections be served although `readline` returns buffered lines without waiting.
PAUSE_S = 0.01
#: Seconds in which a user's shim must read the answers to its messages.
DRAIN_S = 30.0


class ShimListener:
    """Accepts connections of shims (the parents of jobs' ranks), and passes on their messages."""

    def __init__(
        self,
        node: Path,
        name: str,
        on_message: OnMessage,
        *,
        max_line: int = _MAX_LINE,
        accepts: Callable[[int, int], bool] | None = None,
    ) -> None:
        """Prepare to listen.

        Args:
            node: the folder in which the socket is made.
            name: the name of the socket.
            on_message: takes each message, and the connection.
            max_line: longest message in bytes.
            accepts: gets a user id and the number of open connections of that user, and returns
                whether another connection is accepted. By default only this account and root may
                connect.
        """
        self._path = node / name
        self._on_message = on_message
        self._max_line, self._accepts = max_line, accepts
        self._connections: Counter[int] = Counter()
        self._warned = -_WARN_INTERVAL_S
        self._taking: asyncio.Task[NoReturn] | None = None
        self._listener: socket.socket | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Replace the socket of an earlier controller, and listen."""
        self._path.unlink(missing_ok=True)
        # Name the socket from its open folder: the whole path may be longer than allowed.
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        sock = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(f"/proc/self/fd/{folder}/{self._path.name}")
            sock.listen(_BACKLOG)
        finally:
            os.close(folder)
        os.chmod(self._path, 0o600 if self._accepts is None else 0o666)
        taking = take_connections(sock, self._serve, limit=self._max_line)
        self._taking = asyncio.create_task(taking)

    async def close(self) -> None:
        """Close all connections; shims retry until the next controller listens."""
        if self._taking is not None:
            self._taking.cancel()
        if self._listener is not None:
            self._listener.close()
        for writer in self._writers:
            writer.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        self._writers.add(writer)
        self._connections[uid] += 1
        try:
            if not self._may_connect(uid):
                self._warn(f"refused a process of user {uid} on {self._path}")
                return
            while not writer.is_closing() and (line := await reader.readline()):
                self._on_message(json.loads(line), writer)
                if self._accepts is not None:
                    await _wait_for_peer(writer)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._warn(f"a shim of user {uid} was cut off: {error}")
        finally:
            self._connections[uid] -= 1
            self._writers.discard(writer)
            writer.close()

    def _may_connect(self, uid: int) -> bool:
        if self._accepts is None:
            return uid in {0, os.getuid()}
        return self._accepts(uid, self._connections[uid] - 1)

    def _warn(self, text: str) -> None:
        """Log a warning, limited in rate so that no user's process can fill the disk."""
        now = time.monotonic()
        if now - self._warned >= _WARN_INTERVAL_S:
            self._warned = now
            logger.warning("%s", text)


async def _wait_for_peer(writer: asyncio.StreamWriter) -> None:
    """Wait until the backlog of answers to a shim is small, and then ``PAUSE_S`` seconds more.

    Raises:
        TimeoutError: the shim has not read the answers within ``DRAIN_S`` seconds. The connection
            has been aborted.
    """
    if not writer.is_closing():
        try:
            async with asyncio.timeout(DRAIN_S):
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()
            raise TimeoutError(f"it read no answer within {DRAIN_S:g} s") from None
    await asyncio.sleep(PAUSE_S)

"""The unix socket on which shims connect to the controller."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pliant.protos.daemons.sockets import take_connections

logger = logging.getLogger("pliant.nodectl")

#: The longest line a shim sends: the pairs of a large world.
_MAX_LINE = 1 << 26

_BACKLOG = 1024

#: pid, uid and gid of the other end.
_PEER = struct.Struct("3i")

OnMessage = Callable[[dict[str, Any], asyncio.StreamWriter], None]


class ShimListener:
    """Accepts shims and passes on their messages."""

    def __init__(self, node: Path, name: str, on_message: OnMessage) -> None:
        self._path = node / name
        self._on_message = on_message
        self._taking: asyncio.Task[NoReturn] | None = None
        self._listener: socket.socket | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Replace the socket of an earlier controller, and listen."""
        self._path.unlink(missing_ok=True)
        sock = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Name the socket from its open folder: the whole path may be longer than allowed.
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.bind(f"/proc/self/fd/{folder}/{self._path.name}")
            sock.listen(_BACKLOG)
        finally:
            os.close(folder)
        os.chmod(self._path, 0o600)
        self._taking = asyncio.create_task(take_connections(sock, self._serve, limit=_MAX_LINE))

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
        self._writers.add(writer)
        try:
            if not _is_ours(writer):
                logger.warning("refused a stranger on %s", self._path)
                return
            while line := await reader.readline():
                self._on_message(json.loads(line), writer)
        except (OSError, ValueError, KeyError) as error:
            logger.warning("a shim was cut off: %s", error)
        finally:
            self._writers.discard(writer)
            writer.close()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    sock = writer.get_extra_info("socket")
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    uid = _PEER.unpack(data)[1]
    return uid in {0, os.getuid()}

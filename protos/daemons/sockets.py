"""Accept the connections of a daemon's unix socket."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import NoReturn

log = logging.getLogger(__name__)

#: Seconds before the next attempt after a connection could not be accepted.
RETRY_S = 0.2

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


async def take_connections(listener: socket.socket, serve: Serve, *, limit: int) -> NoReturn:
    """Serve each connection in its own task, until cancelled; the listener stays open.

    If no descriptor is left, new connections wait in the kernel's queue, and one log line says so.
    The server of asyncio would log a traceback for each place in that queue, each second.

    Args:
        listener: a listening unix socket.
        serve: serves one connection and closes it.
        limit: longest line in bytes.
    """
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    serving: set[asyncio.Task[None]] = set()
    scarce = False
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError as error:
            if not scarce:
                log.warning("not accepting connections: %s", error.strerror)
            scarce = True
            await asyncio.sleep(RETRY_S)
            continue
        scarce = False
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=limit)
        task = loop.create_task(serve(reader, writer))
        serving.add(task)
        task.add_done_callback(serving.discard)

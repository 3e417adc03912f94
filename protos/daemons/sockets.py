"""How the daemons take those who connect to their unix sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import NoReturn

log = logging.getLogger(__name__)

#: Who cannot be taken is tried again after so long, seconds.
AGAIN_S = 0.2

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


async def take_connections(listener: socket.socket, serve: Serve, *, limit: int) -> NoReturn:
    """Serve each who connects in a task of its own, until cancelled; the listener stays open.

    While there is no descriptor left, who connects waits in the kernel's queue, and one line of the
    log says so: asyncio's own server logs a traceback for each place of that queue, each second.

    Args:
        listener: a unix socket that listens.
        serve: talks to one of them and closes the connection.
        limit: bytes of the longest line.
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
                log.warning("who connects has to wait: %s", error.strerror)
            scarce = True
            await asyncio.sleep(AGAIN_S)
            continue
        scarce = False
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=limit)
        task = loop.create_task(serve(reader, writer))
        serving.add(task)
        task.add_done_callback(serving.discard)

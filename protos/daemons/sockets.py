"""Listen on a unix socket for users, and accept its connections."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NoReturn

log = logging.getLogger(__name__)

#: Length of the queue of connections that are not accepted yet.
BACKLOG = 512
#: Seconds before the next attempt after a connection could not be accepted.
RETRY_S = 0.2

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


async def take_connections(listener: socket.socket, serve: Serve, *, limit: int) -> NoReturn:
    """Serve each connection in its own task, until cancelled; the listener stays open.

    If this process has no free descriptor, new connections wait in the kernel's queue, and one line
    is logged. `asyncio.start_unix_server` would log a traceback for each of them every second.

    Args:
        listener: a listening unix socket.
        serve: serves one connection and closes it.
        limit: the longest permitted line in bytes.
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


def listen(path: Path, mode: int = 0o600) -> socket.socket:
    """Create a unix socket at ``path`` and listen on it.

    The socket appears at ``path`` only when users can connect to it. It replaces a socket that a
    killed daemon left. The caller holds a lock, so no other daemon uses this path.

    Args:
        path: the path of the socket.
        mode: who may connect: 0600 for this account, 0666 for all users.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    umask = os.umask(0o177)
    try:
        # The path of a socket is limited to 107 bytes. This one is short for any folder.
        short = f"/proc/self/fd/{folder}/{draft.name}"
        listener.bind(short)
        os.chmod(short, mode)
        listener.listen(BACKLOG)
        draft.rename(path)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(umask)
        os.close(folder)
    return listener

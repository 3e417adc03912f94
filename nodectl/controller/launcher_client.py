"""Start a launcher, start it again if it dies, and exchange messages with it."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger("pliant.nodectl")

#: Seconds before the next start, in case launchers die soon after their start.
_RESTART_S = 0.2


class LauncherCallbacks(NamedTuple):
    """The functions that a `LauncherClient` calls, with the spool folder of the world concerned.

    A world is a set of ranks with one ``MPI_COMM_WORLD``, which a shim starts and watches.
    """

    #: A world has no shim any more.
    on_gone: Callable[[str], None]
    #: No shim could be forked for a world: its folder and the reason.
    on_failed: Callable[[str, str], None]
    #: A new launcher has started, which knows no world.
    on_new: Callable[[], None]


class LauncherClient:
    """Keeps one launcher (the process that forks shims) running, and passes on its messages."""

    def __init__(
        self,
        log: Path,
        descriptors: int,
        callbacks: LauncherCallbacks,
    ) -> None:
        self._log = log  # stderr of the launcher and of shims
        self._descriptors = descriptors  # the soft limit of open files for jobs
        self._callbacks = callbacks
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None

    def start_world(self, directory: str) -> None:
        """Ask the launcher for a shim that starts and watches a world (set of ranks).

        Args:
            directory: the spool folder of the world.
        """
        if self._writer is not None:
            self._writer.write(json.dumps({"start": directory}).encode() + b"\n")

    async def run(self) -> None:
        """Keep one launcher running until cancelled; start a new one whenever it ends."""
        try:
            while True:
                reader = await self._start()
                self._callbacks.on_new()
                try:
                    while line := await reader.readline():
                        self._dispatch(json.loads(line))
                except OSError:
                    pass  # the launcher was killed before it read all orders
                code = await self._collect()
                logger.error("the launcher ended with %s; starting another", code)
                await asyncio.sleep(_RESTART_S)
        finally:
            await self._collect()

    def _dispatch(self, message: dict[str, str]) -> None:
        if "failed" in message:
            self._callbacks.on_failed(message["failed"], message["reason"])
        else:
            self._callbacks.on_gone(message["gone"])

    async def _start(self) -> asyncio.StreamReader:
        ours, theirs = socket.socketpair()
        # Not our own stderr: shims outlive us, and a reader of that pipe would wait for them.
        with theirs, open(self._log, "ab") as log:
            command = [sys.executable, "-P", "-m", "pliant.nodectl.launcher"]
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(self._descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[theirs.fileno()],
            )
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        return reader

    async def _collect(self) -> int | None:
        """Close our end of the socket, which ends the launcher, and return its exit status.

        None if no launcher was started.
        """
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._process is None:
            return None
        process, self._process = self._process, None
        return await asyncio.shield(asyncio.to_thread(process.wait))


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit; return the former soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft

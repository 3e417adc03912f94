"""The controller's handle on its launcher."""

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

#: How long to wait before the next start when launchers die young.
_RESTART_S = 0.2


class LauncherCallbacks(NamedTuple):
    """Who is told what; worlds are named by their spool folders."""

    #: A world has no shim any more.
    on_gone: Callable[[str], None]
    #: A world could not be given one, for a reason.
    on_failed: Callable[[str, str], None]
    #: A launcher is there that knows of nothing.
    on_new: Callable[[], None]


class LauncherClient:
    """Keeps one launcher running and passes on what it says."""

    def __init__(
        self,
        log: Path,
        descriptors: int,
        callbacks: LauncherCallbacks,
    ) -> None:
        self._log = log  # for complaints of the launcher and of shims
        self._descriptors = descriptors  # the soft limit that jobs shall see
        self._callbacks = callbacks
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None

    def start_world(self, directory: str) -> None:
        """Have a shim forked for a spool folder."""
        if self._writer is not None:
            self._writer.write(json.dumps({"start": directory}).encode() + b"\n")

    async def run(self) -> None:
        """Run launchers, one after the other, until cancelled."""
        try:
            while True:
                reader = await self._start()
                self._callbacks.on_new()
                try:
                    while line := await reader.readline():
                        self._dispatch(json.loads(line))
                except OSError:
                    pass  # it was killed with orders unread
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
        # Not our own log: shims outlive us, and whoever reads it waits until all have closed it.
        with theirs, open(self._log, "ab") as log:
            command = [sys.executable, "-m", "pliant.nodectl.launcher"]
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
        """Close our end, upon which the launcher ends, and return how it did."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._process is None:
            return None
        process, self._process = self._process, None
        return await asyncio.shield(asyncio.to_thread(process.wait))


def raise_descriptor_limit() -> int:
    """Allow this process all the descriptors it may have; return the former limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft

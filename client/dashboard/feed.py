"""Follow the Pliant server with one subscription, and pass its changes on to all browsers.

The subscription runs in a thread. State and browsers belong to the event loop of the web server.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from pliant.client.client_errors import ClientError
from pliant.client.connection import Connection
from pliant.client.dashboard.live_state import WINDOW_S, LiveState

#: Changes are gathered for this time before browsers get them, seconds.
GATHER_S = 0.25
#: Browsers get a message at least this often, so that they notice a lost connection, seconds.
TICK_S = 1.0
#: Time between two forecasts of starts, seconds.
FORECAST_S = 5.0
#: Bytes that may wait for one browser. One that is further behind loads the state again.
MAX_WAITING_BYTES = 256 << 10
#: Browsers at once.
MAX_BROWSERS = 200
_RETRY_S = 1.0

encode = msgspec.json.Encoder().encode


class TooManyBrowsersError(Exception):
    """The dashboard already serves its largest number of browsers."""


class Browser:
    """The messages that wait for one browser."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._arrived = asyncio.Event()
        self.closed = False

    def put(self, message: bytes) -> None:
        """Queue a message for this browser.

        If more than `MAX_WAITING_BYTES` would wait, they are replaced by a message that makes the
        browser load the whole state again.
        """
        if self._bytes + len(message) > MAX_WAITING_BYTES:
            self._waiting, self._bytes = [sse("reset", b'{"why":"behind"}')], 0
        else:
            self._waiting.append(message)
            self._bytes += len(message)
        self._arrived.set()

    def close(self) -> None:
        """End the stream of messages to this browser."""
        self.closed = True
        self._arrived.set()

    async def take(self) -> bytes:
        """Wait for messages and return them joined; empty when the stream has ended."""
        await self._arrived.wait()
        self._arrived.clear()
        taken, self._waiting, self._bytes = b"".join(self._waiting), [], 0
        return taken


def sse(event: str, data: bytes) -> bytes:
    """Format a message as a server-sent event."""
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"


class Feed:
    """Follows the state of the cluster, and streams its changes to all browsers."""

    def __init__(self, directory: str | None) -> None:
        self.state = LiveState()
        self._directory = directory
        self._browsers: set[Browser] = set()
        self._changed = asyncio.Event()
        self._link = Connection(directory)
        self._stopped = threading.Event()
        self._applied_first = False
        self._lost_at: float | None = None
        #: The daemon's clock minus this process's monotonic one, seconds.
        self._ahead = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within this context, follow the Pliant server and send its changes to the browsers."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._follow, args=(loop,), name="subscription")
        thread.start()
        tasks = [loop.create_task(self._publish()), loop.create_task(self._forecast())]
        try:
            yield
        finally:
            self._stopped.set()
            self._link.interrupt()
            for task in tasks:
                task.cancel()
            self.close_streams()
            await loop.run_in_executor(None, thread.join)

    @property
    def lost_for_s(self) -> float:
        """Return for how many seconds the Pliant server has been away.

        0 if it answers, or if it has never answered.
        """
        if self.state.connected or not self._applied_first or self._lost_at is None:
            return 0.0
        return time.monotonic() - self._lost_at

    def close_streams(self) -> None:
        """End the streams of all browsers, so that the web server can stop."""
        for browser in self._browsers:
            browser.close()

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield server-sent events for one browser, until its stream is closed.

        Raises:
            TooManyBrowsersError: there are too many browsers.
        """
        if len(self._browsers) >= MAX_BROWSERS:
            raise TooManyBrowsersError
        mine = Browser()
        self._browsers.add(mine)
        try:
            yield b"retry: 2000\n\n" + self._message(self.state.header())
            while not mine.closed:
                yield await mine.take()
        finally:
            self._browsers.discard(mine)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Subscribe to the Pliant server, and pass each message to the event loop.

        If the server ends the connection, subscribe again. This method runs in a thread.
        """
        position: dict[str, Any] = {"since": time.time() - WINDOW_S}
        while not self._stopped.is_set():
            try:
                for message in self._link.watch(**position):
                    position = {"after": message["seq"]}
                    loop.call_soon_threadsafe(self._apply, message)
                    if self._stopped.is_set():
                        return
            except ClientError as error:
                if self._stopped.is_set():
                    return
                loop.call_soon_threadsafe(self._lose, str(error))
                self._stopped.wait(_RETRY_S)

    def _apply(self, message: Mapping[str, Any]) -> None:
        is_new_server = self.state.apply(message)
        self._ahead = self.state.now - time.monotonic()
        if is_new_server and self._applied_first:
            for browser in self._browsers:
                browser.put(sse("reset", b'{"why":"generation"}'))
        self._applied_first = True
        self._changed.set()

    def _lose(self, why: str) -> None:
        if self.state.connected or self._lost_at is None:
            self._lost_at = time.monotonic()
        self.state.lose(why)
        self._changed.set()

    async def _publish(self) -> None:
        """Send changes to all browsers until cancelled.

        Changes within `GATHER_S` seconds become one message. Without changes, a message is sent
        every `TICK_S` seconds.
        """
        while True:
            try:
                await asyncio.wait_for(self._changed.wait(), TICK_S)
                await asyncio.sleep(GATHER_S)
            except TimeoutError:
                pass
            self._changed.clear()
            if self.state.connected:  # the daemon is silent for some seconds if nothing changes
                self.state.now = time.monotonic() + self._ahead
            self.state.forget_old()
            message = self._message(self.state.take_changes())
            for browser in self._browsers:
                browser.put(message)

    async def _forecast(self) -> None:
        """Ask the Pliant server for expected starts while jobs wait and browsers are connected."""
        loop, seen = asyncio.get_running_loop(), -1
        while True:
            await asyncio.sleep(FORECAST_S)
            waits = any(track.state == "PENDING" for track in self.state.tracks.by_job.values())
            if not (waits and self._browsers and self.state.connected) or seen == self.state.seq:
                continue
            seen = self.state.seq
            try:
                starts = await loop.run_in_executor(None, self._ask_starts)
            except ClientError:
                continue  # the subscription tells that the daemon has left
            self.state.set_starts(starts)
            self._changed.set()

    def _ask_starts(self) -> Mapping[str, Any]:
        with Connection(self._directory) as link:
            return dict(link.request("starts")["starts"])

    @staticmethod
    def _message(changes: Mapping[str, Any]) -> bytes:
        return sse("delta", encode(changes))

"""Messages of a daemon to systemd: it is ready, reloads, stops, or is still alive.

The protocol is that of ``sd_notify(3)``: lines in a datagram to the socket that ``NOTIFY_SOCKET``
names. A daemon that was not started by systemd sends nothing. The root helper uses this module, so
only the standard library is imported.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """Sends messages to the service manager that started this process, if there is one.

    Args:
        address: the address of the manager's socket; empty if there is no manager. It begins with
            ``@`` for an abstract socket.
        watchdog_s: the manager restarts the daemon if `alive` was not called for this many seconds;
            0 if it does not watch the daemon.
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        #: Call `alive` at least this often, seconds; None if the manager does not ask for it.
        self.interval_s = watchdog_s / 4 if watchdog_s > 0 else None
        self._alive_at = 0.0

    @classmethod
    def from_environment(
        cls, environment: MutableMapping[str, str] | None = None
    ) -> ServiceManager:
        """Return the manager that the environment variables name, and remove these variables.

        Without the removal, processes of jobs would inherit the variables, and programs that use
        them would send messages of their own.
        """
        variables = os.environ if environment is None else environment
        address, interval, pid = (variables.pop(name, "") for name in _VARIABLES)
        if not address.startswith(("/", "@")):
            return cls()
        is_watched = interval.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(interval) / 1e6 if is_watched else 0.0)

    def ready(self, status: str) -> None:
        """Report to systemd that the daemon has started or has reloaded its settings.

        ``status`` is the text that `systemctl status` shows.
        """
        self._send("READY=1", _status(status))

    def status(self, text: str) -> None:
        """Set the text that `systemctl status` shows."""
        self._send(_status(text))

    def reloading(self) -> None:
        """Report to systemd that the daemon is reloading its settings; call `ready` afterwards."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self) -> None:
        """Report to systemd that the daemon is stopping."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Report to systemd's watchdog that the main loop is running.

        Frequent calls are cheap: a message is sent at most once in half of ``interval_s``.
        """
        if self.interval_s is None:
            return
        now = time.monotonic()
        if now - self._alive_at >= self.interval_s / 2:
            self._alive_at = now
            self._send("WATCHDOG=1")

    async def keep_alive(self) -> None:
        """Call `alive` regularly in the event loop of a daemon, until cancelled."""
        from asyncio import sleep  # the root helper has no event loop

        while self.interval_s is not None:
            self.alive()
            await sleep(self.interval_s)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except OSError:
            pass  # the manager is restarted: the next message may arrive


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}"

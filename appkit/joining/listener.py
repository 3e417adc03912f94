"""The rendezvous's door: accepts connections, and bounds what strangers can take up."""

import selectors
import socket
import time

from pliant.appkit.joining.peer import Guest

#: Strangers that are not admitted in this time are sent away, seconds.
PATIENCE_S = 60.0
#: More strangers wait outside, unless one of these is not worth its place.
MOST_STRANGERS = 256
#: After the system had no room for a connection, seconds.
_PAUSE_S = 1.0


class Door:
    """A listener and the connections that came in by it. Used by one thread, except ``wake``."""

    def __init__(self, host: str) -> None:
        """Listen on a free port.

        Raises:
            OSError: the host is not an address of this machine.
        """
        self._listener = socket.create_server((host, 0), backlog=1024)
        self._listener.setblocking(False)
        name = f"[{host}]" if ":" in host else host
        self.address = f"{name}:{self._listener.getsockname()[1]}"
        #: The resize that newcomers come for now; None: not known.
        self.awaited: int | None = None
        self._guests: dict[Guest, None] = {}  # the oldest first
        self._shut_until = 0.0
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)

    def wake(self) -> None:
        """End a ``wait``, from any thread."""
        try:
            self._wake.send(b"x")
        except OSError:
            pass  # it has enough to wake up for, or is closed

    def wait(self, until: float | None) -> list[Guest]:
        """Let in who comes; those of whom something can be read.

        Args:
            until: when to come back at the latest, on the monotonic clock.
        """
        self._open_or_shut()
        ready = []
        for key, _ in self._selector.select(self._rest(until)):
            if key.fileobj is self._listener:
                self._let_in()
            elif key.fileobj is self._woken:
                self._woken.recv(4096)
            else:
                ready.append(key.data)
        return [guest for guest in ready if guest in self._guests]

    def strangers(self) -> list[Guest]:
        """Who is here and not admitted."""
        return [guest for guest in self._guests if not guest.admitted]

    def overdue(self) -> list[Guest]:
        """Strangers that have been here too long."""
        now = time.monotonic()
        return [guest for guest in self.strangers() if now >= guest.since + PATIENCE_S]

    def see_off(self, guest: Guest) -> None:
        """Close a connection."""
        del self._guests[guest]
        self._selector.unregister(guest.lines.sock)
        guest.lines.close()

    def close(self) -> None:
        """Close everything: who comes now is refused by the system."""
        for guest in self._guests:
            guest.lines.close()
        for sock in (self._listener, self._wake, self._woken):
            sock.close()
        self._selector.close()

    def _rest(self, until: float | None) -> float | None:
        """Seconds until somebody's time is up."""
        now = time.monotonic()
        times = [guest.since + PATIENCE_S for guest in self.strangers()]
        if self._shut_until > now:
            times.append(self._shut_until)
        if until is not None:
            times.append(until)
        return max(0.0, min(times) - now) if times else None

    def _open_or_shut(self) -> None:
        """Listen only while there is room: a full house must not keep the thread busy."""
        room = len(self.strangers()) < MOST_STRANGERS or self._idler() is not None
        opens = room and time.monotonic() >= self._shut_until
        listens = self._listener in self._selector.get_map()
        if opens and not listens:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif listens and not opens:
            self._selector.unregister(self._listener)

    def _idler(self) -> Guest | None:
        """The oldest stranger that says nothing, or has come for another resize.

        If there is none, the oldest one that has not answered the application's proof: each process
        can send a first message that looks right, and a joining rank answers at once.
        """
        for guest in self.strangers():
            greeting = guest.greeting
            if greeting is None or self.awaited not in (None, greeting.resize):
                return guest
        return next((guest for guest in self.strangers() if guest.challenged), None)

    def _let_in(self) -> None:
        idler = self._idler() if len(self.strangers()) >= MOST_STRANGERS else None
        if idler is not None:
            self.see_off(idler)
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return  # it went away before it was accepted
        except OSError:  # no descriptor is free, for example
            self._shut_until = time.monotonic() + _PAUSE_S
            return
        try:
            guest = Guest(sock)
        except OSError:
            sock.close()
            return
        self._guests[guest] = None
        self._selector.register(sock, selectors.EVENT_READ, guest)

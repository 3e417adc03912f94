"""The rendezvous's door: accepts connections, and bounds what unauthenticated can take up."""

import selectors
import socket
import time

from pliant.appkit.joining.peer import Peer

#: Strangers that are not is_admitted in this time are sent away, seconds.
MAX_UNPROVEN_S = 60.0
#: More unauthenticated wait outside, unless one of these is not worth its place.
MAX_UNPROVEN = 256
#: After the system had no room for a connection, seconds.
_PAUSE_S = 1.0


class Listener:
    """A listener and the connections that came in by it. Used by one thread, except ``wake``."""

    def __init__(self, host: str) -> None:
        """Listen on a free port.

        Raises:
            OSError: the host is not an address of this machine.
        """
        self._socket = socket.create_server((host, 0), backlog=1024)
        self._socket.setblocking(False)
        name = f"[{host}]" if ":" in host else host
        self.address = f"{name}:{self._socket.getsockname()[1]}"
        #: The resize that newcomers come for now; None: not known.
        self.awaited_resize: int | None = None
        self._peers: dict[Peer, None] = {}  # the oldest first
        self._paused_until = 0.0
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

    def poll(self, until: float | None) -> list[Peer]:
        """Let in who comes; those of whom something can be read.

        Args:
            until: when to come back at the latest, on the monotonic clock.
        """
        self._update_listening()
        ready = []
        for key, _ in self._selector.select(self._timeout(until)):
            if key.fileobj is self._socket:
                self._accept()
            elif key.fileobj is self._woken:
                self._woken.recv(4096)
            else:
                ready.append(key.data)
        return [peer for peer in ready if peer in self._peers]

    def unauthenticated(self) -> list[Peer]:
        """Who is here and not is_admitted."""
        return [peer for peer in self._peers if not peer.is_admitted]

    def expired(self) -> list[Peer]:
        """Strangers that have been here too long."""
        now = time.monotonic()
        return [
            peer for peer in self.unauthenticated() if now >= peer.connected_at + MAX_UNPROVEN_S
        ]

    def close_peer(self, peer: Peer) -> None:
        """Close a connection."""
        del self._peers[peer]
        self._selector.unregister(peer.lines.sock)
        peer.lines.close()

    def close(self) -> None:
        """Close everything: who comes now is refused by the system."""
        for peer in self._peers:
            peer.lines.close()
        for sock in (self._socket, self._wake, self._woken):
            sock.close()
        self._selector.close()

    def _timeout(self, until: float | None) -> float | None:
        """Seconds until somebody's time is up."""
        now = time.monotonic()
        times = [peer.connected_at + MAX_UNPROVEN_S for peer in self.unauthenticated()]
        if self._paused_until > now:
            times.append(self._paused_until)
        if until is not None:
            times.append(until)
        return max(0.0, min(times) - now) if times else None

    def _update_listening(self) -> None:
        """Listen only while there is room: a full house must not keep the thread busy."""
        room = len(self.unauthenticated()) < MAX_UNPROVEN or self._oldest_idle() is not None
        opens = room and time.monotonic() >= self._paused_until
        listens = self._socket in self._selector.get_map()
        if opens and not listens:
            self._selector.register(self._socket, selectors.EVENT_READ)
        elif listens and not opens:
            self._selector.unregister(self._socket)

    def _oldest_idle(self) -> Peer | None:
        """The oldest stranger that says nothing, or has come for another resize.

        If there is none, the oldest one that has not answered the application's proof: each process
        can send a first message that looks right, and a joining rank answers at once.
        """
        for peer in self.unauthenticated():
            request = peer.request
            if request is None or self.awaited_resize not in (None, request.resize):
                return peer
        return next((peer for peer in self.unauthenticated() if peer.is_challenged), None)

    def _accept(self) -> None:
        idle = self._oldest_idle() if len(self.unauthenticated()) >= MAX_UNPROVEN else None
        if idle is not None:
            self.close_peer(idle)
        try:
            sock, _ = self._socket.accept()
        except BlockingIOError:
            return  # it went away before it was accepted
        except OSError:  # no descriptor is free, for example
            self._paused_until = time.monotonic() + _PAUSE_S
            return
        try:
            peer = Peer(sock)
        except OSError:
            sock.close()
            return
        self._peers[peer] = None
        self._selector.register(sock, selectors.EVENT_READ, peer)

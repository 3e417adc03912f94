"""Accept connections at the rendezvous, and bound the resources of unauthenticated ones.

Every process that reaches this host can connect. So connections that have not proved to be joining
ranks are limited in number and in time.
"""

import selectors
import socket
import time

from pliant.appkit.joining.rendezvous_connection import Peer

#: Seconds after which an unauthenticated connection is closed.
MAX_UNPROVEN_S = 60.0
#: Number of unauthenticated connections. More have to wait, unless one of these can be closed.
MAX_UNPROVEN = 256
#: Seconds without new connections after the system could not provide one.
_PAUSE_S = 1.0


class Listener:
    """A listening socket and its connections. Other threads may call only `wake`."""

    def __init__(self, host: str) -> None:
        """Listen on a free port of ``host``.

        Raises:
            OSError: the host is not an address of this machine.
        """
        self._socket = socket.create_server((host, 0), backlog=1024)
        self._socket.setblocking(False)
        name = f"[{host}]" if ":" in host else host
        self.address = f"{name}:{self._socket.getsockname()[1]}"
        #: The resize whose joining ranks are expected; None if that is not known.
        self.awaited_resize: int | None = None
        self._peers: dict[Peer, None] = {}  # in the order in which they connected
        self._paused_until = 0.0
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)

    def wake(self) -> None:
        """Make a running `poll` return; may be called in any thread."""
        try:
            self._wake.send(b"x")
        except OSError:
            pass  # enough wake-ups are queued already, or the listener is closed

    def poll(self, until: float | None) -> list[Peer]:
        """Accept new connections, and return the peers that have sent data.

        Args:
            until: the latest time to return, on the monotonic clock; None for no limit.
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
        """Return the connections that have not been admitted, the oldest first."""
        return [peer for peer in self._peers if not peer.is_admitted]

    def expired(self) -> list[Peer]:
        """Return the connections that have been unauthenticated for `MAX_UNPROVEN_S` seconds."""
        now = time.monotonic()
        return [
            peer for peer in self.unauthenticated() if now >= peer.connected_at + MAX_UNPROVEN_S
        ]

    def close_peer(self, peer: Peer) -> None:
        """Close a connection, and stop watching it."""
        del self._peers[peer]
        self._selector.unregister(peer.lines.sock)
        peer.lines.close()

    def close(self) -> None:
        """Close all connections and the listening socket."""
        for peer in self._peers:
            peer.lines.close()
        for sock in (self._socket, self._wake, self._woken):
            sock.close()
        self._selector.close()

    def _timeout(self, until: float | None) -> float | None:
        """Return how many seconds `poll` may sleep; None if there is no limit.

        The limits are ``until``, the time limits of connections, and the end of a pause in which no
        connections are accepted.
        """
        now = time.monotonic()
        times = [peer.connected_at + MAX_UNPROVEN_S for peer in self.unauthenticated()]
        if self._paused_until > now:
            times.append(self._paused_until)
        if until is not None:
            times.append(until)
        return max(0.0, min(times) - now) if times else None

    def _update_listening(self) -> None:
        """Watch the listening socket only while there is room for another connection.

        If it were watched all the time, `poll` would return at once and never sleep.
        """
        has_room = len(self.unauthenticated()) < MAX_UNPROVEN or self._oldest_idle() is not None
        opens = has_room and time.monotonic() >= self._paused_until
        listens = self._socket in self._selector.get_map()
        if opens and not listens:
            self._selector.register(self._socket, selectors.EVENT_READ)
        elif listens and not opens:
            self._selector.unregister(self._socket)

    def _oldest_idle(self) -> Peer | None:
        """Return the unauthenticated connection to close first when there are too many.

        That is the oldest one that has sent no request or names another resize. If there is none,
        it is the oldest that has not answered the application's proof: any process can send a
        correct first message, but a joining rank answers the proof at once.

        Returns:
            The connection; None if there is no such connection.
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
            return  # the other side closed it before it was accepted
        except OSError:  # for example, no file descriptor is free
            self._paused_until = time.monotonic() + _PAUSE_S
            return
        try:
            peer = Peer(sock)
        except OSError:
            sock.close()
            return
        self._peers[peer] = None
        self._selector.register(sock, selectors.EVENT_READ, peer)

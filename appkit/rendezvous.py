"""Where newcomers wait for the application: a TCP listener of the coordinator.

A newcomer sends ``{"resize", "rank", "secret"}``, gets the results of ``job.once`` so far, sends
``{"loop": k}`` when it has reached its k-th loop, and then sleeps in a read until it is told
``{"skip": true}`` (that loop is over) or ``{"port": …}`` (connect now). The end of the connection
means that it is not needed any more.
"""

import base64
import hmac
import json
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.appkit.control import Lines

#: Connections that show no secret in this time are closed, seconds.
_PATIENCE_S = 60.0
_SEND_TIMEOUT_S = 30.0


@dataclass
class _Guest:
    lines: Lines
    since: float
    greeting: dict[str, Any] | None = None
    #: The loop at which it waits; 0: on its way.
    loop: int = 0


@dataclass
class _Gathering:
    resize: int
    secret: str
    count: int
    deadline: float
    members: dict[int, _Guest] = field(default_factory=dict)


class Rendezvous:
    """The listener and its thread. One gathering at a time."""

    def __init__(
        self,
        host: str,
        gathered: Callable[[bool], None],
        lost: Callable[[str], None],
        once: Callable[[], list[bytes]],
    ) -> None:
        """Listen on a free port of ``host``.

        Args:
            host: where the nodes of the job reach this process.
            gathered: called with whether all newcomers now wait at the active loop.
            lost: called with a reason when a newcomer is gone or time is up.
            once: pickled results of ``job.once`` so far.

        Raises:
            OSError: the host is not an address of this machine.
        """
        self._listener = socket.create_server((host, 0))
        name = f"[{host}]" if ":" in host else host
        self.address = f"{name}:{self._listener.getsockname()[1]}"
        self._gathered, self._lost, self._once = gathered, lost, once
        self._lock = threading.RLock()
        self._gathering: _Gathering | None = None
        self._loop = 0
        self._complaint = ""
        self._complained = threading.Event()
        self._guests: list[_Guest] = []
        self._closing = False
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="pliant-rendezvous", daemon=True)
        self._thread.start()

    def expect(self, resize: int, secret: str, count: int, timeout: float) -> None:
        """Gather ``count`` newcomers of a resize within ``timeout`` seconds."""
        with self._lock:
            self._complaint = ""
            self._complained.clear()
            self._gathering = _Gathering(resize, secret, count, time.monotonic() + timeout)
        self._wake.send(b"x")

    def enter(self, loop: int) -> None:
        """The application is in its loop number ``loop`` now."""
        with self._lock:
            self._loop = loop
        self._wake.send(b"x")

    def alive(self) -> bool:
        """Whether all newcomers' connections stand."""
        with self._lock:
            gathering = self._gathering
            return (
                gathering is not None
                and len(gathering.members) == gathering.count
                and all(_stands(guest.lines.sock) for guest in gathering.members.values())
            )

    def announce(self, port: str) -> None:
        """Send the MPI port to all newcomers.

        Raises:
            OSError: one of them is gone.
        """
        with self._lock:
            for guest in self._gathering.members.values() if self._gathering else ():
                guest.lines.send(port=port)

    def complaint(self, timeout: float) -> str:
        """What a newcomer said against the resize, empty: nothing within ``timeout`` seconds."""
        self._complained.wait(timeout)
        return self._complaint

    def dismiss(self) -> None:
        """End the gathering: close the newcomers' connections."""
        with self._lock:
            gathering, self._gathering = self._gathering, None
            for guest in gathering.members.values() if gathering else ():
                try:
                    guest.lines.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it is gone already
        self._wake.send(b"x")

    def close(self) -> None:
        """Stop listening and end the thread."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake.send(b"x")
        self._thread.join(5.0)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._closing:
                for key, _ in selector.select(self._rest()):
                    if key.fileobj is self._listener:
                        self._welcome(selector)
                    elif key.fileobj is self._woken:
                        self._woken.recv(4096)
                    else:
                        self._hear(selector, key.data)
                self._settle(selector)
        for guest in self._guests:
            guest.lines.close()
        for sock in (self._listener, self._wake, self._woken):
            sock.close()

    def _rest(self) -> float | None:
        """Seconds until somebody's time is up."""
        with self._lock:
            times = [g.since + _PATIENCE_S for g in self._guests if g.greeting is None]
            if self._gathering is not None:
                times.append(self._gathering.deadline)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _welcome(self, selector: selectors.BaseSelector) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # it went away before it was accepted
        sock.settimeout(_SEND_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        guest = _Guest(Lines(sock), time.monotonic())
        self._guests.append(guest)
        selector.register(sock, selectors.EVENT_READ, guest)

    def _hear(self, selector: selectors.BaseSelector, guest: _Guest) -> None:
        alive = guest.lines.read()
        try:
            while (message := guest.lines.take()) is not None:
                if guest.greeting is None:
                    guest.greeting = message
                elif "loop" in message:
                    guest.loop = int(message["loop"])
                elif "error" in message:
                    self._complaint = str(message["error"])
                    self._complained.set()
        except (ValueError, TypeError, AttributeError):
            alive = False  # not one of ours
        if not alive:
            self._drop(selector, guest)

    def _drop(self, selector: selectors.BaseSelector, guest: _Guest) -> None:
        selector.unregister(guest.lines.sock)
        guest.lines.close()
        self._guests.remove(guest)
        with self._lock:
            gathering = self._gathering
            member = gathering is not None and guest in gathering.members.values()
        if member:
            rank = guest.greeting.get("rank") if guest.greeting else None
            self._lost(self._complaint or f"newcomer {rank} ended before it joined")

    def _settle(self, selector: selectors.BaseSelector) -> None:
        """Admit who belongs to the gathering, send on who waits at an old loop, tell the rest."""
        now = time.monotonic()
        for guest in [g for g in self._guests if g.greeting is None]:
            if now > guest.since + _PATIENCE_S:
                self._drop(selector, guest)
        with self._lock:
            gathering, active = self._gathering, self._loop
        if gathering is None:
            return
        for guest in list(self._guests):
            if guest.greeting is not None and guest not in gathering.members.values():
                self._admit(selector, gathering, guest)
        for guest in list(gathering.members.values()):
            if 0 < guest.loop < active:
                guest.loop = 0
                _tell(guest, skip=True)
        if len(gathering.members) == gathering.count:
            self._gathered(all(g.loop == active > 0 for g in gathering.members.values()))
        elif now > gathering.deadline:
            missing = sorted(set(range(gathering.count)) - set(gathering.members))
            self._lost(f"newcomers {missing} did not come in time")

    def _admit(
        self, selector: selectors.BaseSelector, gathering: _Gathering, guest: _Guest
    ) -> None:
        greeting = guest.greeting or {}
        secret, rank = str(greeting.get("secret", "")), greeting.get("rank")
        if greeting.get("resize") != gathering.resize:
            return  # of a resize whose GO is still under way
        known = hmac.compare_digest(secret.encode(), gathering.secret.encode())
        if not known or not isinstance(rank, int) or not 0 <= rank < gathering.count:
            self._drop(selector, guest)
            return
        with self._lock:
            gathering.members[rank] = guest
        _tell(guest, once=[base64.b64encode(data).decode() for data in self._once()])


def _tell(guest: _Guest, **message: Any) -> None:
    """Send; who is gone is noticed by the next read."""
    try:
        guest.lines.sock.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        pass


def _stands(sock: socket.socket) -> bool:
    """Whether the other side has not closed; nothing is read and nothing waits."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    try:
        return not poll.poll(0) or sock.recv(1, socket.MSG_PEEK) != b""
    except OSError:
        return False

"""Where newcomers wait for the application: a TCP listener of the coordinator.

A newcomer sends ``{"protocol", "oldest_reader", "resize", "rank", "nonce"}``. The coordinator
answers with ``{"nonce", "proof"}``, and the newcomer with its own ``{"proof"}``: both prove that
they know the secret of the resize, and all later lines are signed (`proof`). Then the newcomer
is refused by its protocol number (``{"refused": reason}``, and the resize fails for this reason) or
gets the number of processes and the results of ``job.once`` so far, sends ``{"loop": k}`` when it
has reached its k-th loop, and sleeps in a read until it is told ``{"skip": true}`` (that loop is
over) or ``{"port": …}`` (connect now). Before that it may be told ``{"constant": …}``, what the
files of constant data are (see `resize.prefetch`), and answers ``{"fetched": true}`` when it has
them. The end of the connection means that it is not needed any more.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.appkit.joining.listener import Listener
from pliant.appkit.joining.peer import Peer

#: Of a newcomer; its own words, a traceback for instance, are where all the job's are.
ENDED = "ended before it joined: see what it said in the job's output file"


@dataclass
class _JoinGroup:
    resize: int
    secret: str
    count: int
    #: On the monotonic clock; None: nobody is missing any more, so nobody can come too late.
    deadline: float | None
    #: By rank.
    peers: dict[int, Peer] = field(default_factory=dict)
    #: What was last told about it.
    was_complete: bool = False
    #: What newcomers are to be told of constant data; None: nothing.
    prefetch: dict[str, Any] | None = None

    def missing_ranks(self) -> list[int]:
        return sorted(set(range(self.count)) - set(self.peers))

    def is_waiting_at(self, loop: int) -> bool:
        return len(self.peers) == self.count and all(
            peer.loop == loop > 0 and (self.prefetch is None or peer.has_fetched is not None)
            for peer in self.peers.values()
        )

    def remove(self, peer: Peer) -> int | None:
        """Its rank, None: it is no each."""
        for rank, each in self.peers.items():
            if each is peer:
                del self.peers[rank]
                return rank
        return None


class Rendezvous:
    """The listener and its thread. One group at a time."""

    def __init__(
        self,
        host: str,
        on_change: Callable[[], None],
        on_failure: Callable[[int, str], None],
        size: Callable[[], int],
        once: Callable[[], list[bytes]],
    ) -> None:
        """Listen on a free port of ``host``. The thread calls the functions, without a lock.

        Args:
            host: where the nodes of the job reach this process.
            on_change: called when ``complete`` has changed.
            on_failure: called with the resize and a reason if it cannot happen: a joining rank has
                ended or is late, or this thread has failed.
            size: processes of the job now.
            once: stored results of ``job.once`` so far.

        Raises:
            OSError: the host is not an address of this machine.
        """
        self._listener = Listener(host)
        self.address = self._listener.address
        self._on_change, self._on_failure = on_change, on_failure
        self._size, self._once = size, once
        self._lock = threading.RLock()
        self._group: _JoinGroup | None = None
        self._loop = 0
        self._error = ""
        self._has_error = threading.Event()
        self._end_reason = ""  # why the thread ends
        self._thread = threading.Thread(target=self._run, name="pliant-rendezvous", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- any thread

    def expect(self, resize: int, secret: str, count: int, timeout: float) -> None:
        """Gather ``count`` newcomers of a resize within ``timeout`` seconds.

        Raises:
            OSError: nobody listens any more.
        """
        with self._lock:
            if self._end_reason:
                raise OSError(self._end_reason)
            self._error = ""
            self._has_error.clear()
            self._group = _JoinGroup(resize, secret, count, time.monotonic() + timeout)
        self._listener.wake()

    def set_loop(self, loop: int) -> None:
        """The application is in its loop number ``loop`` now."""
        with self._lock:
            self._loop = loop
        self._listener.wake()

    def is_complete(self) -> bool:
        """Whether all newcomers wait at the active loop."""
        with self._lock:
            return self._group is not None and self._group.is_waiting_at(self._loop)

    def all_connected(self) -> bool:
        """Whether all newcomers wait at the active loop and their connections stand."""
        with self._lock:
            return self.is_complete() and all(peer.is_connected() for peer in self._peers())

    def send_prefetch(self, resize: int, constant: dict[str, Any]) -> None:
        """Have the newcomers of a resize fetch constant data; until then nothing is complete."""
        with self._lock:
            group = self._group
            if group is not None and group.resize == resize:
                group.prefetch, group.was_complete = constant, False
        self._listener.wake()

    def all_prefetched(self) -> bool:
        """Whether all newcomers have what they were told to fetch."""
        with self._lock:
            group = self._group
            if group is None or group.prefetch is None:
                return True
            return all(peer.has_fetched for peer in group.peers.values())

    def send_port(self, port: str) -> None:
        """Send the MPI port to all newcomers.

        Raises:
            OSError: one of them is gone.
        """
        with self._lock:
            for peer in self._peers():
                peer.lines.send(port=port)

    def wait_for_error(self, timeout: float) -> str:
        """What a newcomer said against the resize, empty: nothing within ``timeout`` seconds."""
        self._has_error.wait(timeout)
        return self._error

    def abort(self) -> None:
        """End the group: close the newcomers' connections."""
        with self._lock:
            for peer in self._peers():
                peer.shutdown()
            self._group = None
        self._listener.wake()

    def close(self) -> None:
        """Stop listening and end the thread."""
        with self._lock:
            self._end_reason = self._end_reason or "the rendezvous is closed"
        self._listener.wake()
        self._thread.join(5.0)

    def _peers(self) -> list[Peer]:
        return list(self._group.peers.values()) if self._group is not None else []

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        fault = ""
        try:
            while not self._end_reason:
                self._serve()
        except BaseException as error:  # a silent end would let newcomers sleep for ever
            fault = f"the rendezvous failed: {type(error).__name__}: {error}"
        with self._lock:
            self._end_reason = self._end_reason or fault
            group, self._group = self._group, None
        self._listener.close()
        if fault and group is not None:
            self._on_failure(group.resize, fault)

    def _serve(self) -> None:
        """Hear whoever says something; admit, send on and tell."""
        with self._lock:
            group = self._group
        self._listener.awaited_resize = group.resize if group is not None else None
        for peer in self._listener.poll(group.deadline if group is not None else None):
            self._receive(peer)
        for peer in self._listener.expired():
            self._remove(peer)
        with self._lock:
            group, active = self._group, self._loop
        if group is not None:
            self._advance(group, active)

    def _receive(self, peer: Peer) -> None:
        try:
            alive = peer.receive()
        except Exception:  # whatever it has sent, it is not one of ours
            alive = False
        with self._lock:
            if peer.error and peer in self._peers():
                self._error = peer.error
                self._has_error.set()
        if not alive:
            self._remove(peer)

    def _remove(self, peer: Peer) -> None:
        with self._lock:
            group = self._group
            rank = group.remove(peer) if group is not None else None
        self._listener.close_peer(peer)
        if group is not None and rank is not None and not peer.has_joined:
            reason = peer.error or f"newcomer {rank} {ENDED}"
            self._on_failure(group.resize, reason)

    def _advance(self, group: _JoinGroup, active: int) -> None:
        """Admit who belongs to the group, send on who waits at an old loop, tell the rest."""
        for peer in self._listener.unauthenticated():
            if not self._admit(group, peer):
                self._remove(peer)
        for peer in list(group.peers.values()):
            if 0 < peer.loop < active:
                peer.loop = 0
                peer.send(skip=True)
            elif peer.loop == active > 0 and group.prefetch is not None and not peer.prefetch_sent:
                peer.prefetch_sent = True
                peer.send(constant=group.prefetch)
        self._report(group)

    def _admit(self, group: _JoinGroup, peer: Peer) -> bool:
        """Admit a newcomer that belongs here and proves it; False: it never will."""
        request = peer.request
        if request is None or request.resize > group.resize:
            return True  # it has said nothing, or the GO of its resize is still under way
        if request.resize < group.resize or request.rank >= group.count:
            return False
        if not request.nonce:  # it cannot prove anything, so it is told why, and nothing else
            peer.send(refused=request.mismatch)
            return False
        if not peer.is_proven:
            peer.challenge(group.secret)
            return True
        if request.mismatch:
            peer.send(refused=request.mismatch)
            self._on_failure(group.resize, request.mismatch)
            return False
        with self._lock:
            if self._group is not group:
                return True  # dismissed meanwhile
            if request.rank in group.peers:
                return False
            group.peers[request.rank] = peer
            peer.is_admitted = True
        peer.welcome(self._size(), self._once())
        return True

    def _report(self, group: _JoinGroup) -> None:
        """Tell what has changed, once."""
        with self._lock:
            if self._group is not group:
                return
            missing, deadline = group.missing_ranks(), group.deadline
            late = bool(missing) and deadline is not None and time.monotonic() >= deadline
            if late or not missing:
                group.deadline = None
            complete = group.is_waiting_at(self._loop)
            changed, group.was_complete = complete != group.was_complete, complete
        if late:
            self._on_failure(group.resize, f"newcomers {missing} did not come in time")
        elif changed:
            self._on_change()

"""The rendezvous of joining ranks with the application: a TCP listener of the coordinator.

The messages, each a line of JSON:

1. The joining rank sends ``{"protocol", "oldest_reader", "resize", "rank", "nonce"}``.
2. The coordinator answers ``{"nonce", "proof"}``, then the joining rank ``{"proof"}``. Both prove
   that they know the secret of the resize, and all later lines are signed
   (`rendezvous_authentication`).
3. The coordinator sends the number of processes and the results of ``job.once`` so far. If the
   protocol numbers do not fit, it sends ``{"refused": reason}`` instead, and the resize fails.
4. The joining rank sends ``{"loop": k}`` when it has reached its k-th loop, and sleeps in a read.
5. If arrays with ``constant=True`` are read before the resize, the coordinator sends
   ``{"constant": …}``, a description of the files (see `resize.prefetch_constant_arrays`), and the
   joining rank answers ``{"fetched": true}`` or false.
6. The coordinator sends ``{"skip": true}`` if the application has left that loop, so that the rank
   continues with step 4, or ``{"port": …}``, the MPI port to connect to.

The end of the connection means that the joining rank is not needed any more.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.appkit.joining.rendezvous_connection import Peer
from pliant.appkit.joining.rendezvous_listener import Listener

#: Follows the name of a joining rank in messages; its traceback is in the job's output file.
ENDED = "ended before it joined: see what it said in the job's output file"


@dataclass
class _JoinGroup:
    """The joining ranks of one resize."""

    resize: int
    secret: str
    count: int
    #: On the monotonic clock; None once all ranks have connected.
    deadline: float | None
    #: The admitted connections by rank.
    peers: dict[int, Peer] = field(default_factory=dict)
    #: The last reported value of `is_waiting_at` the active loop.
    was_complete: bool = False
    #: Description of the prefetched constants for the joining ranks; None if there are none.
    prefetch: dict[str, Any] | None = None

    def missing_ranks(self) -> list[int]:
        """Return the joining ranks, counted from 0, that have not connected and been admitted."""
        return sorted(set(range(self.count)) - set(self.peers))

    def is_waiting_at(self, loop: int) -> bool:
        """Return whether all joining ranks wait at loop ``loop`` of the program.

        If arrays with ``constant=True`` are prefetched, each joining rank must also have read its
        parts or have failed to read them.
        """
        return len(self.peers) == self.count and all(
            peer.loop == loop > 0 and (self.prefetch is None or peer.has_fetched is not None)
            for peer in self.peers.values()
        )

    def remove(self, peer: Peer) -> int | None:
        """Remove a connection, and return the number of the joining rank that it belongs to.

        None if the connection belongs to no joining rank of this resize.
        """
        for rank, each in self.peers.items():
            if each is peer:
                del self.peers[rank]
                return rank
        return None


class Rendezvous:
    """The TCP listener at which the joining ranks of a resize connect, and its thread.

    It gathers the ranks of one resize at a time.
    """

    def __init__(
        self,
        host: str,
        on_change: Callable[[], None],
        on_failure: Callable[[int, str], None],
        size: Callable[[], int],
        once: Callable[[], list[bytes]],
    ) -> None:
        """Listen on a free port of ``host``, and start the thread.

        The thread calls the functions without holding a lock.

        Args:
            host: address at which the nodes of the job reach this process.
            on_change: called when the result of `is_complete` has changed.
            on_failure: called with the number of the resize and a reason if the resize cannot
                happen: a joining rank has ended or is late, or this thread has failed.
            size: returns the number of processes of the job now.
            once: returns the encoded results of ``job.once`` so far.

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
        self._end_reason = ""  # why the thread ends; empty while it runs
        self._thread = threading.Thread(target=self._run, name="pliant-rendezvous", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- any thread

    def expect(self, resize: int, secret: str, count: int, timeout: float) -> None:
        """Start to gather ``count`` joining ranks; the resize fails after ``timeout`` seconds.

        Only processes that know ``secret``, the secret of the resize, are admitted.

        Raises:
            OSError: the rendezvous is closed.
        """
        with self._lock:
            if self._end_reason:
                raise OSError(self._end_reason)
            self._error = ""
            self._has_error.clear()
            self._group = _JoinGroup(resize, secret, count, time.monotonic() + timeout)
        self._listener.wake()

    def set_loop(self, loop: int) -> None:
        """Set the number of the loop that the application runs.

        Joining ranks that wait at an earlier loop are told to continue to this one.
        """
        with self._lock:
            self._loop = loop
        self._listener.wake()

    def is_complete(self) -> bool:
        """Return whether all joining ranks wait at the loop that the application runs.

        If arrays with ``constant=True`` are prefetched, each joining rank must also have read its
        parts or have failed to read them.
        """
        with self._lock:
            return self._group is not None and self._group.is_waiting_at(self._loop)

    def all_connected(self) -> bool:
        """Return whether `is_complete` is true, and no joining rank has closed its connection."""
        with self._lock:
            return self.is_complete() and all(peer.is_connected() for peer in self._peers())

    def send_prefetch(self, resize: int, constant: dict[str, Any]) -> None:
        """Ask the joining ranks of a resize to read their parts of arrays with ``constant=True``.

        From now on, `is_complete` is False until each joining rank has read its parts or has failed
        to read them.

        Args:
            resize: the number of the resize. If the joining ranks belong to another resize, nothing
                happens.
            constant: a description of the files to read.
        """
        with self._lock:
            group = self._group
            if group is not None and group.resize == resize:
                group.prefetch, group.was_complete = constant, False
        self._listener.wake()

    def all_prefetched(self) -> bool:
        """Return whether all joining ranks have read the arrays that `send_prefetch` named.

        True also if there are none to read.
        """
        with self._lock:
            group = self._group
            if group is None or group.prefetch is None:
                return True
            return all(peer.has_fetched for peer in group.peers.values())

    def send_port(self, port: str) -> None:
        """Send the name of the MPI port to all joining ranks, which then connect to it.

        Raises:
            OSError: a connection is broken.
        """
        with self._lock:
            for peer in self._peers():
                peer.lines.send(port=port)

    def wait_for_error(self, timeout: float) -> str:
        """Return the error text that a joining rank has sent; empty if none arrives in time.

        This waits at most ``timeout`` seconds.
        """
        self._has_error.wait(timeout)
        return self._error

    def abort(self) -> None:
        """Stop gathering joining ranks, and close their connections, so that they end."""
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
        except BaseException as error:  # otherwise the joining ranks would sleep for ever
            fault = f"the rendezvous failed: {type(error).__name__}: {error}"
        with self._lock:
            self._end_reason = self._end_reason or fault
            group, self._group = self._group, None
        self._listener.close()
        if fault and group is not None:
            self._on_failure(group.resize, fault)

    def _serve(self) -> None:
        """Wait for messages and handle them, then send joining ranks what they need next."""
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
        except Exception:  # no joining rank sends such a message
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
            reason = peer.error or f"joining rank {rank} {ENDED}"
            self._on_failure(group.resize, reason)

    def _advance(self, group: _JoinGroup, active: int) -> None:
        """Admit joining ranks, send each the message that it needs next, and report changes.

        Args:
            group: the joining ranks of one resize.
            active: the number of the loop that the application runs. Ranks that wait at an earlier
                loop are told to continue to this one.
        """
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
        """Take the next step of the handshake with ``peer``, which claims to be a joining rank.

        Returns:
            False if the peer must be disconnected.
        """
        request = peer.request
        if request is None or request.resize > group.resize:
            return True  # it has sent nothing, or the GO of its resize has not arrived yet
        if request.resize < group.resize or request.rank >= group.count:
            return False
        if not request.nonce:  # this version has no proofs, so it only gets the reason
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
                return True  # the resize was aborted in the meantime
            if request.rank in group.peers:
                return False
            group.peers[request.rank] = peer
            peer.is_admitted = True
        peer.welcome(self._size(), self._once())
        return True

    def _report(self, group: _JoinGroup) -> None:
        """Call ``on_change`` if `is_complete` has changed, ``on_failure`` if ranks are late."""
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
            self._on_failure(group.resize, f"joining ranks {missing} did not arrive in time")
        elif changed:
            self._on_change()

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

from pliant.appkit.joining.listener import Door
from pliant.appkit.joining.peer import Guest

#: Of a newcomer; its own words, a traceback for instance, are where all the job's are.
ENDED = "ended before it joined: see what it said in the job's output file"


@dataclass
class _Gathering:
    resize: int
    secret: str
    count: int
    #: On the monotonic clock; None: nobody is missing any more, so nobody can come too late.
    deadline: float | None
    #: By rank.
    members: dict[int, Guest] = field(default_factory=dict)
    #: What was last told about it.
    told: bool = False
    #: What newcomers are to be told of constant data; None: nothing.
    constant: dict[str, Any] | None = None

    def missing(self) -> list[int]:
        return sorted(set(range(self.count)) - set(self.members))

    def waits_at(self, loop: int) -> bool:
        return len(self.members) == self.count and all(
            guest.loop == loop > 0 and (self.constant is None or guest.fetched is not None)
            for guest in self.members.values()
        )

    def forget(self, guest: Guest) -> int | None:
        """Its rank, None: it is no member."""
        for rank, member in self.members.items():
            if member is guest:
                del self.members[rank]
                return rank
        return None


class Rendezvous:
    """The listener and its thread. One gathering at a time."""

    def __init__(
        self,
        host: str,
        gathered: Callable[[], None],
        lost: Callable[[int, str], None],
        size: Callable[[], int],
        once: Callable[[], list[bytes]],
    ) -> None:
        """Listen on a free port of ``host``. The thread calls the functions, without a lock.

        Args:
            host: where the nodes of the job reach this process.
            gathered: called when ``complete`` has changed.
            lost: called with the resize and a reason when it cannot be: a newcomer is gone, time
                is up, or this thread has failed.
            size: processes of the job now.
            once: stored results of ``job.once`` so far.

        Raises:
            OSError: the host is not an address of this machine.
        """
        self._door = Door(host)
        self.address = self._door.address
        self._gathered, self._lost = gathered, lost
        self._size, self._once = size, once
        self._lock = threading.RLock()
        self._gathering: _Gathering | None = None
        self._loop = 0
        self._complaint = ""
        self._complained = threading.Event()
        self._over = ""  # why the thread ends
        self._thread = threading.Thread(target=self._run, name="pliant-rendezvous", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- any thread

    def expect(self, resize: int, secret: str, count: int, timeout: float) -> None:
        """Gather ``count`` newcomers of a resize within ``timeout`` seconds.

        Raises:
            OSError: nobody listens any more.
        """
        with self._lock:
            if self._over:
                raise OSError(self._over)
            self._complaint = ""
            self._complained.clear()
            self._gathering = _Gathering(resize, secret, count, time.monotonic() + timeout)
        self._door.wake()

    def enter(self, loop: int) -> None:
        """The application is in its loop number ``loop`` now."""
        with self._lock:
            self._loop = loop
        self._door.wake()

    def complete(self) -> bool:
        """Whether all newcomers wait at the active loop."""
        with self._lock:
            return self._gathering is not None and self._gathering.waits_at(self._loop)

    def alive(self) -> bool:
        """Whether all newcomers wait at the active loop and their connections stand."""
        with self._lock:
            return self.complete() and all(guest.stands() for guest in self._members())

    def send_prefetch(self, resize: int, constant: dict[str, Any]) -> None:
        """Have the newcomers of a resize fetch constant data; until then nothing is complete."""
        with self._lock:
            gathering = self._gathering
            if gathering is not None and gathering.resize == resize:
                gathering.constant, gathering.told = constant, False
        self._door.wake()

    def provided(self) -> bool:
        """Whether all newcomers have what they were told to fetch."""
        with self._lock:
            gathering = self._gathering
            if gathering is None or gathering.constant is None:
                return True
            return all(guest.fetched for guest in gathering.members.values())

    def announce(self, port: str) -> None:
        """Send the MPI port to all newcomers.

        Raises:
            OSError: one of them is gone.
        """
        with self._lock:
            for guest in self._members():
                guest.lines.send(port=port)

    def complaint(self, timeout: float) -> str:
        """What a newcomer said against the resize, empty: nothing within ``timeout`` seconds."""
        self._complained.wait(timeout)
        return self._complaint

    def dismiss(self) -> None:
        """End the gathering: close the newcomers' connections."""
        with self._lock:
            for guest in self._members():
                guest.hang_up()
            self._gathering = None
        self._door.wake()

    def close(self) -> None:
        """Stop listening and end the thread."""
        with self._lock:
            self._over = self._over or "the rendezvous is closed"
        self._door.wake()
        self._thread.join(5.0)

    def _members(self) -> list[Guest]:
        return list(self._gathering.members.values()) if self._gathering is not None else []

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        fault = ""
        try:
            while not self._over:
                self._serve()
        except BaseException as error:  # a silent end would let newcomers sleep for ever
            fault = f"the rendezvous failed: {type(error).__name__}: {error}"
        with self._lock:
            self._over = self._over or fault
            gathering, self._gathering = self._gathering, None
        self._door.close()
        if fault and gathering is not None:
            self._lost(gathering.resize, fault)

    def _serve(self) -> None:
        """Hear whoever says something; admit, send on and tell."""
        with self._lock:
            gathering = self._gathering
        self._door.awaited = gathering.resize if gathering is not None else None
        for guest in self._door.wait(gathering.deadline if gathering is not None else None):
            self._hear(guest)
        for guest in self._door.overdue():
            self._drop(guest)
        with self._lock:
            gathering, active = self._gathering, self._loop
        if gathering is not None:
            self._settle(gathering, active)

    def _hear(self, guest: Guest) -> None:
        try:
            alive = guest.hear()
        except Exception:  # whatever it has sent, it is not one of ours
            alive = False
        with self._lock:
            if guest.complaint and guest in self._members():
                self._complaint = guest.complaint
                self._complained.set()
        if not alive:
            self._drop(guest)

    def _drop(self, guest: Guest) -> None:
        with self._lock:
            gathering = self._gathering
            rank = gathering.forget(guest) if gathering is not None else None
        self._door.see_off(guest)
        if gathering is not None and rank is not None and not guest.joined:
            reason = guest.complaint or f"newcomer {rank} {ENDED}"
            self._lost(gathering.resize, reason)

    def _settle(self, gathering: _Gathering, active: int) -> None:
        """Admit who belongs to the gathering, send on who waits at an old loop, tell the rest."""
        for guest in self._door.strangers():
            if not self._admit(gathering, guest):
                self._drop(guest)
        for guest in list(gathering.members.values()):
            if 0 < guest.loop < active:
                guest.loop = 0
                guest.tell(skip=True)
            elif guest.loop == active > 0 and gathering.constant is not None and not guest.told:
                guest.told = True
                guest.tell(constant=gathering.constant)
        self._tell(gathering)

    def _admit(self, gathering: _Gathering, guest: Guest) -> bool:
        """Admit a newcomer that belongs here and proves it; False: it never will."""
        greeting = guest.greeting
        if greeting is None or greeting.resize > gathering.resize:
            return True  # it has said nothing, or the GO of its resize is still under way
        if greeting.resize < gathering.resize or greeting.rank >= gathering.count:
            return False
        if not greeting.nonce:  # it cannot prove anything, so it is told why, and nothing else
            guest.tell(refused=greeting.mismatch)
            return False
        if not guest.proven:
            guest.challenge(gathering.secret)
            return True
        if greeting.mismatch:
            guest.tell(refused=greeting.mismatch)
            self._lost(gathering.resize, greeting.mismatch)
            return False
        with self._lock:
            if self._gathering is not gathering:
                return True  # dismissed meanwhile
            if greeting.rank in gathering.members:
                return False
            gathering.members[greeting.rank] = guest
            guest.admitted = True
        guest.admit(self._size(), self._once())
        return True

    def _tell(self, gathering: _Gathering) -> None:
        """Tell what has changed, once."""
        with self._lock:
            if self._gathering is not gathering:
                return
            missing, deadline = gathering.missing(), gathering.deadline
            late = bool(missing) and deadline is not None and time.monotonic() >= deadline
            if late or not missing:
                gathering.deadline = None
            complete = gathering.waits_at(self._loop)
            changed, gathering.told = complete != gathering.told, complete
        if late:
            self._lost(gathering.resize, f"newcomers {missing} did not come in time")
        elif changed:
            self._gathered()

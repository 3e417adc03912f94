"""Limits on each user's connections and requests, so that no user can keep others out.

They apply to the users' socket. Root and the server's own account have no limits: an administrator
can always connect.
"""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pliant.core.support.base_error import PliantError

#: Users together may have this part of the descriptors, and one user this part of those.
_USERS_PART, _ONE_USER_PART = 4, 4


class PeerLimitError(PliantError):
    """A user exceeds a limit on connections, waiting requests or bytes."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """The limits of one user on the socket for users: connections, requests and bytes."""

    connections: float = 256
    #: Requests that wait for the end of a job, each on a connection of its own.
    waits: float = 200
    #: Requests with a tag that wait for the end of a job. They share connections, so there may be
    #: more of them.
    tagged_waits: float = 5000
    #: Subscriptions to changes.
    watches: float = 16
    #: Requests that are carried out or answered. Further ones wait for their turn.
    requests: int = 8
    #: Bytes of requests that have arrived and are not answered.
    bytes: float = 32 << 20
    #: A request must arrive, and an answer must be read, within this time without progress.
    stall_s: float | None = 60.0


#: For accounts without limits.
UNLIMITED = PeerLimits(math.inf, math.inf, math.inf, math.inf, 1 << 30, math.inf, None)


@dataclass(slots=True)
class PeerUse:
    """The connections, waiting requests and bytes that one user has on the users' socket now."""

    limits: PeerLimits
    turns: asyncio.Semaphore
    connections: int = 0
    waits: int = 0
    tagged_waits: int = 0
    watches: int = 0
    bytes: int = 0

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Within this context, count a request that waits for the end of a job.

        Raises:
            PeerLimitError: the user has too many such requests.
        """
        _check_waits(self.waits, self.limits.waits)
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1

    @contextmanager
    def tagged_wait(self) -> Iterator[None]:
        """Within this context, count a request with a tag that waits for the end of a job.

        The tag marks the answer, so that many such requests can share a connection.

        Raises:
            PeerLimitError: the user has too many such requests.
        """
        _check_waits(self.tagged_waits, self.limits.tagged_waits)
        self.tagged_waits += 1
        try:
            yield
        finally:
            self.tagged_waits -= 1

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Within this context, count one more subscription to changes of jobs.

        ``jobstat --watch`` opens such a subscription.

        Raises:
            PeerLimitError: the user has too many subscriptions.
        """
        if self.watches >= self.limits.watches:
            raise PeerLimitError(
                f"you have {self.watches} subscriptions to changes (`history --follow`, "
                "`jobstat --watch`, dashboards), which is the limit for one user: end some of them"
            )
        self.watches += 1
        try:
            yield
        finally:
            self.watches -= 1

    def would_exceed(self, number: int) -> bool:
        """Return whether ``number`` more bytes of requests would exceed the limit."""
        return self.bytes + number > self.limits.bytes

    def take_bytes(self, number: int) -> None:
        """Count bytes of requests that have arrived, until they are returned with `give_bytes`.

        Raises:
            PeerLimitError: the user's requests have too many bytes.
        """
        if self.would_exceed(number):
            raise PeerLimitError(
                f"your requests that are not answered yet have {self.bytes} bytes, and one user "
                f"may have {self.limits.bytes:.0f}: send fewer at once"
            )
        self.bytes += number

    def give_bytes(self, number: int) -> None:
        """Reduce the user's count of bytes by those of requests that were answered or dropped."""
        self.bytes -= number


def _check_waits(number: int, limit: float) -> None:
    if number >= limit:
        raise PeerLimitError(
            f"{number} requests of yours wait for the end of jobs already, which is the limit for "
            "one user: end some of them"
        )


@dataclass(slots=True)
class PeerTable:
    """The present connections and requests of each user. Used in one event loop."""

    limits: PeerLimits = field(default_factory=PeerLimits)
    #: Accounts without limits, unless they come from a login host.
    exempt: frozenset[int] = frozenset()
    _uses: dict[tuple[int, bool], PeerUse] = field(default_factory=dict)

    @contextmanager
    def connection(self, uid: int, *, is_remote: bool = False) -> Iterator[PeerUse]:
        """Within this context, count a connection of a user.

        Args:
            uid: the user id of the user.
            is_remote: whether the user's requests come through a login agent.

        Raises:
            PeerLimitError: if the user has too many connections.
        """
        key = (uid, is_remote)
        use = self._uses.get(key) or self._new(uid, is_remote)
        if use.connections >= use.limits.connections:
            raise PeerLimitError(
                f"you have {use.connections} connections to the server, which is the limit for "
                "one user: close some of them"
            )
        self._uses[key] = use
        use.connections += 1
        try:
            yield use
        finally:
            use.connections -= 1
            if not use.connections:
                del self._uses[key]

    def _new(self, uid: int, is_remote: bool) -> PeerUse:
        limits = UNLIMITED if uid in self.exempt and not is_remote else self.limits
        return PeerUse(limits, asyncio.Semaphore(limits.requests))


def default_limits() -> PeerLimits:
    """Return the default limits on each user's connections and requests.

    A user may have fewer connections if this process may open only few files.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    share = max(8, most // (_USERS_PART * _ONE_USER_PART))
    return PeerLimits(connections=min(PeerLimits().connections, share))

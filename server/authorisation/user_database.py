"""Names and groups of users, from the user database of this host.

The database may be a service in the network. So it is asked in threads of its own, and answers are
used for a minute.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from dataclasses import dataclass

from pliant.server.support.threads import thread_pool

#: Answers are used for this long, seconds.
KEPT_S = 60.0
_MAX_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class UserAccount:
    """An account of this host: name, user id and groups."""

    uid: int
    #: The number as a text if the host does not know the user.
    name: str
    groups: frozenset[int] = frozenset()
    is_known: bool = True


class UserDatabase:
    """Finds users by their id, and remembers answers for a minute. Used in one event loop."""

    def __init__(self) -> None:
        self._threads = thread_pool("users", 2)
        self._kept: dict[int, tuple[float, UserAccount]] = {}

    async def find(self, uid: int) -> UserAccount:
        """Return the user with an id; ``is_known`` is False if the host has no such user."""
        now = time.monotonic()
        until, account = self._kept.get(uid, (0.0, None))
        if account is None or now >= until:
            loop = asyncio.get_running_loop()
            account = await loop.run_in_executor(self._threads, look_up, uid)
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[uid] = (now + KEPT_S, account)
        return account

    def close(self) -> None:
        """End the threads, without waiting for answers of the user database."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def look_up(uid: int) -> UserAccount:
    """Return a user from the user database of this host; this may take seconds."""
    try:
        found = pwd.getpwuid(uid)
        groups = os.getgrouplist(found.pw_name, found.pw_gid)
    except (KeyError, OSError):
        return UserAccount(uid, str(uid), is_known=False)
    return UserAccount(uid, found.pw_name, frozenset(groups))

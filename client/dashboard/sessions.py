"""Who may read the page and who may act: tokens, sessions, and checks of requests.

Every account of the host can connect to a port of the loopback interface. So reading needs a
session, too. A browser gets one with a token from the address that ``pliant dashboard`` prints. The
token is in the fragment of the address, which browsers do not send and do not log.

A browser sends the cookies of a host to all ports of the host, so also to a web server of another
account. Therefore the cookie alone does not give access. Each request also needs a key, which the
page keeps in a storage that belongs to this port. Only the answer to the login contains the key.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["operator", "viewer"]

#: The header that all requests must carry. Pages of other origins cannot set it.
CSRF_HEADER = "x-pliant-csrf"
#: A session ends after this time, seconds.
LIFETIME_S = 12 * 3600.0
#: Sessions at once; the oldest is dropped.
MAX_SESSIONS = 200
#: Wrong tokens in a minute; then every login is refused until the minute has passed.
MAX_FAILURES = 30
#: Hosts that a request may name. Another one means that a foreign name points to this machine.
_OWN_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})


class LoginError(Exception):
    """The token of a login is wrong, or logins are refused after too many wrong tokens."""


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has logged in."""

    role: Role
    #: The key that requests must carry next to the cookie.
    csrf: str
    until: float


class Sessions:
    """The sessions of all browsers, kept in the memory of this process only."""

    def __init__(
        self, *, read_only: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        #: The name of the cookie. Dashboards on other ports of the host have others, so that a
        #: browser can use several.
        self.cookie = f"pliant_session_{secrets.token_hex(4)}"
        self._tokens: dict[Role, str] = {"viewer": secrets.token_urlsafe(24)}
        if not read_only:
            self._tokens["operator"] = secrets.token_urlsafe(24)
        self._sessions: dict[str, Session] = {}
        self._failures: list[float] = []

    @property
    def tokens(self) -> Mapping[Role, str]:
        """Return the tokens with which browsers log in, by the role that a token gives.

        The roles are "viewer" and, unless the dashboard is read-only, "operator".
        """
        return self._tokens

    def login(self, token: str) -> tuple[str, Session]:
        """Start a session with a token; return the value of its cookie, and the session.

        Raises:
            LoginError: the token is wrong, or logins are refused after too many wrong tokens.
        """
        now = self._clock()
        self._failures = [at for at in self._failures if at > now - 60.0]
        if len(self._failures) >= MAX_FAILURES:
            raise LoginError("there were too many wrong tokens: try again in a minute")
        given = token.encode("utf-8", "replace")
        known = [(role, each.encode()) for role, each in self._tokens.items()]
        roles = [role for role, each in known if hmac.compare_digest(each, given)]
        if not roles:
            self._failures.append(now)
            raise LoginError("the token is wrong: open the address that `pliant dashboard` printed")
        cookie = secrets.token_urlsafe(24)
        session = Session(roles[0], secrets.token_urlsafe(24), now + LIFETIME_S)
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[cookie] = session
        return cookie, session

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie, None if there is none."""
        session = self._sessions.get(cookie or "")
        if session is None or session.until <= self._clock():
            self._sessions.pop(cookie or "", None)
            return None
        return session

    def logout(self, cookie: str | None) -> None:
        """End a session, so that its cookie is no longer accepted."""
        self._sessions.pop(cookie or "", None)


def is_own_host(host: str) -> bool:
    """Return whether the header ``Host`` names this machine's loopback interface."""
    name, _, port = host.rpartition(":")
    if not port.isdecimal():
        name = host
    return name in _OWN_HOSTS


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether a request comes from a page of this dashboard and not from another site."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin not in {
        f"http://{headers.get('host', '')}",
        f"https://{headers.get('host', '')}",
    }:
        return False
    return site in (None, "same-origin")

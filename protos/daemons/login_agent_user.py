"""The first line that a login agent sends on a connection to the server: the user it acts for.

The agent adds this line before what the user sends. All following lines are the user's own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pliant.core.support.base_error import PliantError

#: Version of this line.
FORM = 1
#: Bytes of the longest line.
MAX_LINE_BYTES = 4096
#: Agents speak for no user with a lower id: those are root and accounts of services.
LOWEST_UID = 1000
_MAX_UID = (1 << 32) - 2


class UserAssertionError(PliantError):
    """A login agent, the daemon of a login host, may not act for a user, or sent a wrong line."""


@dataclass(frozen=True, slots=True)
class UserAssertion:
    """The id and name of the user of a connection, as a login agent states them."""

    uid: int
    #: The name on the login host.
    user: str

    def encode(self) -> bytes:
        """Return the assertion as one line of JSON."""
        record = {"login_agent": FORM, "uid": self.uid, "user": self.user}
        return json.dumps(record).encode("ascii") + b"\n"


def check_uid(uid: int) -> None:
    """Check that a login agent may act for a user.

    Raises:
        UserAssertionError: the user is root or a system account.
    """
    if not LOWEST_UID <= uid <= _MAX_UID:
        raise UserAssertionError(
            f"login agents pass on requests of users with an id from {LOWEST_UID} only, and this "
            f"one is {uid}: use an ordinary account, or the host of the server"
        )


def decode_assertion(line: bytes) -> UserAssertion:
    """Read the line in which a login agent names its user.

    Raises:
        UserAssertionError: the line is of another kind, or agents may not act for this user.
    """
    try:
        record = json.loads(line)
        form, uid, user = record["login_agent"], record["uid"], record["user"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise UserAssertionError("the first line is not that of a login agent") from None
    if form != FORM:
        raise UserAssertionError(
            f"the login agent uses form {form!r:.20} of its first line, this server form {FORM}: "
            "install the same version on both hosts"
        )
    if type(uid) is not int or not isinstance(user, str):
        raise UserAssertionError("the first line of the login agent names no user")
    check_uid(uid)
    return UserAssertion(uid, user)

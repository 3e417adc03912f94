"""Users of jobs: look them up, and become one of them for good."""

from __future__ import annotations

import ctypes
import os
import pwd
from dataclasses import dataclass
from typing import Any

from pliant.nodectl.root_helper.errors import HelperRefusalError

_PR_SET_NO_NEW_PRIVS = 38
_PR_GET_NO_NEW_PRIVS = 39

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class User:
    """A user, with the groups that this host gives to the account."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str

    @classmethod
    def from_record(cls, fields: dict[str, Any]) -> User:
        """Read a user from the message of another process of root."""
        return cls(fields["uid"], fields["gid"], tuple(fields["groups"]), fields["name"])


def find_user(uid: int, gid: int) -> User:
    """Return a user of this host.

    Args:
        uid: of the job, which the caller has checked to be allowed.
        gid: the main group of the user on the server's host.

    Raises:
        HelperRefusalError: there is no such account here, or its groups are not acceptable.
    """
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        message = f"this host has no account with user id {uid}"
        raise HelperRefusalError("unknown-user", message) from None
    if entry.pw_gid != gid:
        message = f"the main group of user {uid} is {entry.pw_gid} here, and {gid} on the server"
        raise HelperRefusalError("group", message)
    groups = tuple(sorted(set(os.getgrouplist(entry.pw_name, gid))))
    if uid != 0 and 0 in groups:
        raise HelperRefusalError("group", f"user {uid} is in root's group on this host")
    return User(uid, gid, groups, entry.pw_name)


def become(user: User) -> None:
    """Give up root for good: groups, then group, then user, and check each.

    Raises:
        OSError: a step failed. The process must end.
    """
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if sorted(os.getgroups()) != list(user.groups):
        raise PermissionError("the groups were not set")
    if os.getresgid() != (user.gid,) * 3 or os.getresuid() != (user.uid,) * 3:
        raise PermissionError("the user was not set")
    if user.uid != 0:
        try:
            os.setuid(0)
        except PermissionError:
            pass
        else:
            raise PermissionError("root could be taken back")
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise PermissionError("programs could gain privileges (no_new_privs)")

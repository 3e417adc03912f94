"""Users of jobs: look them up, and change this process to one of them irrevocably."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import struct
from dataclasses import dataclass
from typing import Any

from pliant.nodectl.root_helper.helper_errors import HelperRefusalError

_PR_SET_NO_NEW_PRIVS = 38
_PR_GET_NO_NEW_PRIVS = 39

_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
#: Version 3 of `capset`: effective, permitted and inheritable, of the lower and the upper half.
_CAPABILITY_VERSION, _CAPABILITIES = 0x20080522, struct.Struct("=6I")
#: The number of the system call, which the C library does not name.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1

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
        """Read a user from a message that another process of root has sent."""
        return cls(fields["uid"], fields["gid"], tuple(fields["groups"]), fields["name"])


def find_user(uid: int, gid: int) -> User:
    """Return a user of this host with all groups of the account.

    Args:
        uid: the user id of the job, which the caller has checked to be allowed.
        gid: the main group of the user on the server's host.

    Raises:
        HelperRefusalError: there is no such account here, its main group is another one, or it is
            in root's group.
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


def leave_session_keyring() -> None:
    """Join a new, empty session keyring, because root's keyring may hold keys.

    Call it as root. A keyring of the user would count against the number of keys of this user.

    Raises:
        OSError: no new keyring can be made. The process must end.
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        return  # the number of the system call is not known
    if _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None) == -1:
        error = ctypes.get_errno()
        # A kernel without keyrings has no keys. A container whose filter forbids the system call
        # (EPERM) forbids it to the programs of users too, so they cannot read any.
        if error not in {errno.ENOSYS, errno.EPERM}:
            raise OSError(error, f"no new session keyring: {os.strerror(error)}")


def _drop_inheritable_capabilities() -> None:
    """Clear the capabilities that executed programs inherit.

    A change of the user does not clear them.

    Raises:
        OSError: the capabilities could not be cleared. The process must end.
    """
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(_CAPABILITIES.size)
    if _libc.capget(header, sets) == 0:
        effective, permitted, _, high_effective, high_permitted, _ = _CAPABILITIES.unpack(sets.raw)
        sets.raw = _CAPABILITIES.pack(effective, permitted, 0, high_effective, high_permitted, 0)
        if _libc.capset(header, sets) == 0 and _libc.capget(header, sets) == 0:
            words = _CAPABILITIES.unpack(sets.raw)
            if words[2] == words[5] == 0:
                return
    raise PermissionError("the inheritable capabilities were not dropped")


def become(user: User) -> None:
    """Give up root irrevocably: set groups, group, user, then capabilities, and check each.

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
    _drop_inheritable_capabilities()
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

"""The roles file: which users and groups are operators or administrators.

No request changes roles. They come from a file that belongs to root or to the server's account and
that nobody else can write, and are read again on SIGHUP.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pliant.core.support.base_error import PliantError
from pliant.protos.daemons.config_files import MAX_BYTES, ConfigFileError, parse_config
from pliant.protos.daemons.private_paths import UntrustedPathError, read_private

_ROLES = ("operators", "administrators")
_KINDS = ("users", "groups")


class RolesFileError(PliantError):
    """The roles file cannot be used; the text has the file, the wrong key and the expected form."""


@dataclass(frozen=True, slots=True)
class Members:
    """The users who have a role: by user id, or by the id of a group that they are in."""

    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()

    def include(self, uid: int, groups: frozenset[int]) -> bool:
        """Return whether a user has the role."""
        return uid in self.users or not self.groups.isdisjoint(groups)


@dataclass(frozen=True, slots=True)
class Roles:
    """The members of each role."""

    operators: Members = field(default_factory=Members)
    administrators: Members = field(default_factory=Members)


def read_roles(path: str, operators: Sequence[str] = ()) -> Roles:
    """Read which users and groups are operators or administrators.

    Args:
        path: the path of the roles file; empty if there is none.
        operators: names of further operators, from the configuration of the server.

    Raises:
        RolesFileError: another account could change the file, it cannot be read, or it names a
            user or a group that does not exist.
    """
    named = frozenset(_uid(name, "operators") for name in operators)
    if not path:
        return Roles(Members(named))
    found = {role: _members(path, role, value) for role, value in _read(path).items()}
    operating = found.get("operators", Members())
    return Roles(
        Members(operating.users | named, operating.groups),
        found.get("administrators", Members()),
    )


def _read(path: str) -> Mapping[str, object]:
    if not Path(path).is_absolute():
        raise RolesFileError(f"roles: {path}: write an absolute path")
    try:
        settings = parse_config(read_private(path, max_bytes=MAX_BYTES, shared=True))
    except UntrustedPathError as error:
        # The remedy of this error is meant for the folders of a cluster.
        what = str(error).partition(";")[0]
        raise RolesFileError(
            f"roles: {what}; the file and its folder must belong to root or to the account of the "
            "server, and nobody else may write them"
        ) from None
    except (OSError, ConfigFileError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RolesFileError(f"roles: {path}: {why}") from None
    for key in settings:
        if key not in _ROLES:
            raise RolesFileError(f"roles: {path}: {key}: unknown role; known: {', '.join(_ROLES)}")
    return settings


def _members(path: str, role: str, value: object) -> Members:
    where = f"roles: {path}: {role}"
    if value is None:
        return Members()
    if not isinstance(value, dict) or not all(key in _KINDS for key in value):
        raise RolesFileError(
            f"{where}: expected the keys users and groups, each with a list of names"
        )
    lists = {kind: _names(f"{where}.{kind}", value.get(kind)) for kind in _KINDS}
    return Members(
        frozenset(_uid(name, f"{where}.users") for name in lists["users"]),
        frozenset(_gid(name, f"{where}.groups") for name in lists["groups"]),
    )


def _names(where: str, value: object) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise RolesFileError(f"{where}: expected a list of names, got {value!r:.80}")
    return value


def _uid(name: str, where: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise RolesFileError(f"{where}: there is no user {name!r:.80}") from None


def _gid(name: str, where: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        raise RolesFileError(f"{where}: there is no group {name!r:.80}") from None

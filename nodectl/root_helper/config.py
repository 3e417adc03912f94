"""The settings of the root helper, from files that only root can change.

The folder of the settings holds ``order.pub``, the key with which the server signs launch orders,
and ``helper.json``::

    {"cluster": "blue", "node": "n7", "account": "pliant", "system_users": []}
"""

from __future__ import annotations

import json
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pliant.nodectl.host.cpus import parse_cpus
from pliant.nodectl.root_helper.helper_errors import HelperConfigError
from pliant.protos.daemons.private_paths import read_private
from pliant.protos.identity.certificate_names import check_name
from pliant.protos.identity.identity_errors import IdentityError
from pliant.protos.identity.keys import parse_order_public_key

SETTINGS, KEY = "helper.json", "order.pub"
SOCKET = "helper.sock"
_MAX_BYTES = 1 << 16
_KEYS = {"cluster", "node", "account", "system_users", "cpus", "max_tasks"}


@dataclass(frozen=True, slots=True)
class HelperConfig:
    """The settings of the root helper, and the key with which it verifies launch orders."""

    cluster: str
    node: str
    #: The account of the controller. Only its processes may connect.
    account_uid: int
    account_gid: int
    #: Users below 1000, such as root, whose jobs may run here.
    system_users: frozenset[int]
    key: Ed25519PublicKey
    #: Folder of the socket, of the jobs' folders and of the records of what runs.
    run: Path
    #: Folder of what must survive a restart of the host: used nonces and the generation.
    state: Path
    #: CPUs that a controller may give to jobs; empty if there is no such limit.
    cpus: frozenset[int] = frozenset()
    #: Tasks that a world may have; 0 if the controller decides alone.
    max_tasks: int = 0

    @property
    def socket(self) -> Path:
        """Return the path of the socket on which the helper serves the controller."""
        return self.run / SOCKET

    @property
    def shims(self) -> Path:
        """Return the folder of the socket on which the controller accepts connections of shims.

        Shims are the parents of jobs' ranks. The folder belongs to the account of the controller.
        """
        return self.run / "shims"


def load_config(folder: Path, run: Path, state: Path) -> HelperConfig:
    """Read the settings, and check that only root can change them.

    Raises:
        HelperConfigError: names the file and what is wrong with it.
    """
    record = _read_settings(folder / SETTINGS)
    try:
        key = parse_order_public_key(_read_owned_by_root(folder / KEY))
    except HelperConfigError as error:
        if (folder / KEY).exists():
            raise
        remedy = "copy order.pub from the folder node-identity of the controller"
        raise HelperConfigError(f"{error}; {remedy}") from None
    except IdentityError as error:
        raise HelperConfigError(f"{folder / KEY}: {error}") from None
    account = _find_account(folder / SETTINGS, record["account"])
    return HelperConfig(
        cluster=record["cluster"],
        node=record["node"],
        account_uid=account[0],
        account_gid=account[1],
        system_users=frozenset(record.get("system_users", ())),
        key=key,
        run=run,
        state=state,
        cpus=frozenset(parse_cpus(record["cpus"]) if "cpus" in record else ()),
        max_tasks=record.get("max_tasks", 0),
    )


def prepare_folders(config: HelperConfig) -> None:
    """Create the missing folders of the helper, and check the existing ones.

    Raises:
        HelperConfigError: another account owns a folder, or may change it.
    """
    _make(config.run, 0o755)
    _make(config.state, 0o700)
    _make(config.run / "jobs", 0o711)
    _make(config.run / "started", 0o700)
    _make(config.shims, 0o755, (config.account_uid, config.account_gid))


def _make(path: Path, mode: int, owner: tuple[int, int] = (0, 0)) -> None:
    """Create a folder, or check an existing one, inside a folder that only root can change.

    So no other account can replace the folder.

    Raises:
        HelperConfigError: the folder cannot be made, or belongs to another user.
    """
    _check_parents(path)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise HelperConfigError(f"{path}: {error.strerror}") from None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HelperConfigError(f"{path}: not a folder ({error.strerror}): remove it") from None
    try:
        found = os.fstat(handle)
        if found.st_uid not in (0, owner[0]):
            raise HelperConfigError(f"{path} belongs to the user with id {found.st_uid}: remove it")
        os.fchown(handle, *owner)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def _check_parents(path: Path) -> None:
    """Check that no other account could replace one of the folders in a path."""
    for parent in path.parents:
        try:
            found = os.lstat(parent)
        except OSError as error:
            raise HelperConfigError(f"{parent}: {error.strerror}") from None
        # In a sticky folder such as /tmp, nobody can replace what belongs to another account.
        replaceable = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or replaceable:
            raise HelperConfigError(
                f"{parent}: it must be a folder that belongs to root and that nobody else may "
                "change; name another with --run-dir or --state-dir"
            )


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(_read_owned_by_root(path))
    except (ValueError, RecursionError) as error:
        raise HelperConfigError(f"{path}: {error}") from None
    if not isinstance(record, dict):
        raise HelperConfigError(f"{path}: expected an object")
    for key in record.keys() - _KEYS:
        known = ", ".join(sorted(_KEYS))
        raise HelperConfigError(f"{path}: {key}: there is no such key; the keys are {known}")
    for key in ("cluster", "node"):
        name = record.get(key, "")
        if not isinstance(name, str):
            raise HelperConfigError(f"{path}: {key}: {name!r}: expected a name")
        try:
            check_name(key, name)
        except IdentityError as error:
            raise HelperConfigError(f"{path}: {error}") from None
    try:
        parse_cpus(record.get("cpus", "0"))
    except (ValueError, AttributeError):
        text = f'cpus: {record["cpus"]!r}: expected a list such as "0-3,8"'
        raise HelperConfigError(f"{path}: {text}") from None
    tasks = record.get("max_tasks", 1)
    if type(tasks) is not int or tasks < 1:
        raise HelperConfigError(f"{path}: max_tasks: {tasks!r}: expected a number from 1")
    users = record.get("system_users", [])
    if not isinstance(users, list) or not all(type(each) is int and each >= 0 for each in users):
        raise HelperConfigError(f"{path}: system_users: expected a list of user ids")
    return record


def _find_account(path: Path, account: object) -> tuple[int, int]:
    """Return uid and gid of the controller's account, given as a name or a number."""
    try:
        user = pwd.getpwuid(account) if type(account) is int else pwd.getpwnam(str(account))
    except (KeyError, OverflowError):
        raise HelperConfigError(
            f"{path}: account: {account!r} is no account of this host; name that of the controller"
        ) from None
    return user.pw_uid, user.pw_gid


def _read_owned_by_root(path: Path) -> bytes:
    _check_parents(path)
    try:
        return read_private(path, max_bytes=_MAX_BYTES, shared=True)
    except OSError as error:
        raise HelperConfigError(f"{path}: {error.strerror or error}") from None

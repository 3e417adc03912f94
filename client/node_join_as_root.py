"""``pliant node join --account``: root joins for the account of the daemons on this host.

A process of the account makes the key and joins, so root opens no file where the account could
plant another one. Root then writes the settings of the root helper, a program with root privileges:
the names of the node, and the key with which the server signs orders to the helper.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pliant.client.client_errors import ClientError, UsageError

#: Where the service files of `pliant deploy units` have the state of the daemons.
STATE_DIR = "/var/lib/pliant"
#: Folder of the settings of the root helper.
SETTINGS_DIR = Path("/etc/pliant")
_TIMEOUT_S = 120.0
_MAX_KEY_BYTES = 1 << 16


class JoinedHost(NamedTuple):
    """The record that `pliant node join` printed, and the files that root wrote afterwards."""

    #: The record of `pliant node join --json`.
    record: dict[str, Any]
    #: Files that root has written for the root helper; empty on login hosts.
    written: list[Path]


def join_for_account(account: str, token: str, address: str) -> JoinedHost:
    """Make this host a node or login host whose daemons run as an account.

    Args:
        account: the name of the account.
        token: the token that `pliant cluster token` printed.
        address: the address of the server; empty for the one in the token.

    Raises:
        UsageError: this is not root, or there is no such account.
        ClientError: the host cannot join, or a file cannot be written.
    """
    if os.geteuid() != 0:
        raise UsageError("--account: only root can join for another account; use sudo")
    try:
        user = pwd.getpwnam(account)
    except KeyError:
        raise UsageError(
            f"--account: there is no account {account!r:.80} on this host; `systemd-sysusers` "
            "makes the one of `pliant deploy units`"
        ) from None
    state = os.environ.get("PLIANT_STATE_DIR") or STATE_DIR
    _make_state_folder(state, user)
    record = _join_as(user, state, token, address)
    if record["role"] != "node":
        return JoinedHost(record, [])
    return JoinedHost(record, _set_up_helper(record, account))


def _make_state_folder(state: str, user: pwd.struct_passwd) -> None:
    try:
        os.mkdir(state, 0o700)
    except FileExistsError:
        return  # the process of the account checks it
    except OSError as error:
        raise ClientError(f"{state}: {(error.strerror or '').lower()}") from None
    os.chown(state, user.pw_uid, user.pw_gid)


def _join_as(user: pwd.struct_passwd, state: str, token: str, address: str) -> dict[str, Any]:
    """Run `pliant node join` as another user, and return the record that the command prints.

    Args:
        user: the user, whose account the daemons will have.
        state: the state directory of the user.
        token: the token that admits this host.
        address: the address of the server; empty for the one in the token.

    Raises:
        ClientError: the command failed or took too long.
    """
    command = [sys.executable, "-I", "-m", "pliant.client.commands.cli", "node", "join", "-"]
    command += ["--json", *(["--address", address] if address else [])]
    try:
        done = subprocess.run(
            command,
            input=token,
            text=True,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "PLIANT_STATE_DIR": state},
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            umask=0o077,
        )
    except subprocess.TimeoutExpired:
        raise ClientError(f"the server did not answer within {_TIMEOUT_S:.0f} s") from None
    except PermissionError:
        raise ClientError(
            f"account {user.pw_name} cannot execute {sys.executable}; install Pliant in a folder "
            "that all users can read, such as /opt/pliant"
        ) from None
    if done.returncode != 0:
        text = done.stderr.strip().removeprefix("pliant node: ")
        raise ClientError(text or f"pliant node join ended with exit code {done.returncode}")
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def _set_up_helper(record: dict[str, Any], account: str) -> list[Path]:
    """Write the settings and the key of the root helper; return the paths of both files.

    The helper is a program with root privileges that the node's controller uses. The list of system
    users in an existing settings file is kept.

    Args:
        record: the record of the join, with the names of the cluster and the node.
        account: the name of the account of the daemons.
    """
    from pliant.protos.daemons.atomic_files import write_private
    from pliant.protos.identity.certificate_names import check_name
    from pliant.protos.identity.identity_errors import IdentityError
    from pliant.protos.identity.node_files import ORDER_PUBLIC_KEY

    settings = SETTINGS_DIR / "helper.json"
    try:
        key = _read_order_key(Path(record["directory"]) / ORDER_PUBLIC_KEY)
        names = {name: str(record[name]) for name in ("cluster", "node")}
        for name, value in names.items():
            check_name(name, value)
        SETTINGS_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
        content = json.dumps({**_kept_settings(settings), **names, "account": account}) + "\n"
        written = []
        for path, data in ((SETTINGS_DIR / ORDER_PUBLIC_KEY, key), (settings, content)):
            write_private(path, data.encode("ascii"), mode=0o644)
            written.append(path)
    except (IdentityError, OSError, ValueError) as error:
        raise ClientError(f"the root helper is not set up: {error}") from None
    return written


def _read_order_key(path: Path) -> str:
    """Return the server's public key, with which the root helper checks the server's orders.

    ``path`` is the file with the key, which belongs to the account of the daemons.

    Raises:
        OSError, IdentityError: the file cannot be read, or holds anything but a key.
    """
    from pliant.protos.identity.keys import format_public_key, parse_order_public_key

    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        return format_public_key(parse_order_public_key(file.read(_MAX_KEY_BYTES)))


def _kept_settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        return {}  # the helper would refuse it
    users = found.get("system_users") if isinstance(found, dict) else None
    return {"system_users": users} if users else {}

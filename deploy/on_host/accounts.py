"""The account of the daemons, and commands that run as an account of this host."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from typing import Any, BinaryIO

from pliant.deploy.on_host.host_error import HostError
from pliant.deploy.on_host.manifest import changed_manifest

_COMMAND_TIMEOUT_S = 300.0
_RETRY_S = 0.5
#: Of the output of a command that failed.
_MAX_SHOWN_BYTES = 4096
#: sshd passes a short PATH on, without the folders of administration commands.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_account(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Make a system account if it does not exist, and note it in the record of this host.

    Args:
        arguments: the name of the ``account``, its ``home`` folder, and ``prefix``, the folder of
            installations, which has the record.

    Returns:
        An empty record: there is nothing to report.
    """
    name = arguments["account"]
    if has_account(name):
        return {}
    useradd = shutil.which("useradd", path=PATH)
    if useradd is None:
        raise HostError(f"account {name}: there is no useradd", "make the account by hand")
    words = [useradd, "--system", "--no-create-home", "--home-dir", arguments["home"]]
    words += ["--shell", "/usr/sbin/nologin", "--user-group", name]
    check(words)
    with changed_manifest(arguments["prefix"]) as record:
        record["account"] = name
    return {}


def has_account(name: str) -> bool:
    """Return whether this host has an account with this name."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def find_user(account: str) -> pwd.struct_passwd:
    """Return the entry of an account in the user database.

    Raises:
        HostError: there is no such account.
    """
    try:
        return pwd.getpwnam(account)
    except KeyError:
        raise HostError(
            f"account {account} does not exist on this host", "make it, or change `account`"
        ) from None


def run_as(account: str) -> dict[str, Any]:
    """Return the keyword arguments of `subprocess.Popen` that make a child run as an account.

    The result is empty if this process runs as the account already.
    """
    user = find_user(account)
    if user.pw_uid == os.geteuid():
        return {}
    groups = os.getgrouplist(account, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}


def environment(arguments: dict[str, Any]) -> dict[str, str]:
    """Return the environment variables of a daemon or a command of Pliant on this host.

    Args:
        arguments: the ``account`` under which it runs, and its folders ``state`` and ``run``.
    """
    return {
        "PATH": PATH,
        "HOME": find_user(arguments["account"]).pw_dir,
        "LANG": "C.UTF-8",
        "PLIANT_STATE_DIR": arguments["state"],
        "PLIANT_RUN_DIR": arguments["run"],
    }


def run_command(arguments: dict[str, Any], payload: BinaryIO) -> dict[str, Any]:
    """Run a command as an account, with the payload as its standard input.

    Args:
        arguments: ``argv``, ``account``, ``state`` and ``run`` (folders); optionally ``as_root``
            (run it as root instead), ``retry_s`` (seconds during which a command that fails is
            tried again) and ``may_fail``.
        payload: the input of the command.

    Returns:
        The exit ``code`` and ``stdout``.

    Raises:
        HostError: the command failed, and ``may_fail`` is not set.
    """
    as_root = arguments.get("as_root", False)
    content, deadline = payload.read(), time.monotonic() + arguments.get("retry_s", 0)
    while True:
        done = subprocess.run(
            arguments["argv"],
            input=content,
            capture_output=True,
            check=False,
            cwd="/",
            umask=0o077,
            env=environment(arguments),
            timeout=_COMMAND_TIMEOUT_S,
            **({} if as_root else run_as(arguments["account"])),
        )
        if done.returncode == 0 or time.monotonic() >= deadline:
            break
        time.sleep(_RETRY_S)
    if done.returncode != 0 and not arguments.get("may_fail", False):
        said = _end_of(done.stderr or done.stdout)
        raise HostError(f"`{_shown(arguments['argv'])}` ended with {done.returncode}: {said}")
    return {"code": done.returncode, "stdout": done.stdout.decode("utf-8", "replace")}


def check(argv: list[str]) -> None:
    """Run a command of the system; raise HostError if it fails."""
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        cwd="/",
        env={"PATH": PATH, "LANG": "C.UTF-8"},
        timeout=180,
    )
    if done.returncode != 0:
        said = _end_of(done.stderr or done.stdout)
        raise HostError(f"`{_shown(argv)}` ended with {done.returncode}: {said}")


def _end_of(output: bytes) -> str:
    """Return the last `_MAX_SHOWN_BYTES` bytes of an output as text: errors are printed last."""
    return output[-_MAX_SHOWN_BYTES:].decode("utf-8", "replace").strip()


def _shown(argv: list[str]) -> str:
    return " ".join([os.path.basename(argv[0]), *argv[1:]])

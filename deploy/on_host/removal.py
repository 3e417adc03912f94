"""Remove everything that was deployed on this host, as its record lists it."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, BinaryIO

from pliant.deploy.on_host.accounts import PATH, check
from pliant.deploy.on_host.daemons import STOP_TIMEOUT_S
from pliant.deploy.on_host.host_error import HostError
from pliant.deploy.on_host.manifest import FILE, LOCK, locked, read_manifest
from pliant.deploy.on_host.processes import (
    end_process,
    find_daemons,
    find_processes,
    is_environment,
)

#: In which order daemons are stopped.
_ORDER = ("login", "node", "helper", "server")
_TARGET = "/etc/systemd/system/pliant.target"


def remove_all(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Stop remaining processes of the daemons, and remove files, folders and the account.

    Args:
        arguments: ``prefix``, the folder of installations; ``own``: folders that only Pliant uses,
            which are removed with all that they contain; and ``helper_files``: further files to
            remove.

    Returns:
        ``kept``: the folders that stay because they are not empty. The record is empty if nothing
            was deployed.
    """
    with locked(arguments["prefix"]):
        record = read_manifest(arguments["prefix"])
        return {} if record is None else _remove(arguments, record)


def _remove(arguments: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    prefix = arguments["prefix"]
    daemons = find_daemons(prefix)
    for name in _ORDER:
        if name in daemons:
            end_process(daemons[name].pid, STOP_TIMEOUT_S)
    for process in find_processes(prefix):
        end_process(process.pid, STOP_TIMEOUT_S)
    # An earlier removal may have failed after it removed the units.
    if record["units"] and os.path.exists(_TARGET):
        check(["systemctl", "disable", "--now", "pliant.target"])
    for path in record["files"]:
        _unlink(path)
    if record["units"]:
        check(["systemctl", "daemon-reload"])
    for folder in arguments["own"]:
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.isdir(folder):
            raise HostError(f"{folder} cannot be removed", "remove it by hand")
    for path in arguments["helper_files"]:
        _unlink(path)
    if record["account"]:
        words = [shutil.which("userdel", path=PATH) or "userdel", record["account"]]
        subprocess.run(words, check=False, capture_output=True, env={"PATH": PATH})
    _remove_environments(prefix)
    kept = _remove_folders(record["folders"])
    return {"kept": kept}


def _remove_environments(prefix: str) -> None:
    # The record last: without it, the next run would not find what is left after a failure.
    for name in sorted(os.listdir(prefix), key=lambda name: name in (FILE, LOCK)):
        path = os.path.join(prefix, name)
        if is_environment(name):
            shutil.rmtree(path)
        elif name in (FILE, LOCK) or (name == "current" and os.path.islink(path)):
            os.unlink(path)


def _remove_folders(folders: list[str]) -> list[str]:
    """Remove folders, deepest first; return those that stay because they are not empty."""
    kept = []
    for folder in sorted(folders, key=len, reverse=True):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            kept.append(folder)
    return kept


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

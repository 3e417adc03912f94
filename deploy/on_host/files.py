"""Folders and files that a deployment makes on this host."""

from __future__ import annotations

import hashlib
import os
from typing import Any, BinaryIO

from pliant.deploy.on_host.accounts import find_user
from pliant.deploy.on_host.manifest import changed_manifest, replace_file


def make_folders(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Make folders that do not exist, each with its mode and owner.

    Parents that do not exist are made with mode 0755, and a removal of Pliant removes them, too.

    Args:
        arguments: ``folders``, each with ``path``, ``mode`` and ``owner``; the name of the
            ``cluster``, and ``prefix``, the folder of installations.

    Returns:
        An empty record: there is nothing to report.
    """
    with changed_manifest(arguments["prefix"]) as record:
        record["cluster"] = arguments["cluster"]
        for folder in arguments["folders"]:
            path = folder["path"]
            is_new = not os.path.isdir(path)
            for parent in _missing(path):
                os.mkdir(parent, 0o755)
                if parent not in record["folders"]:  # as after a reboot: those in /run are gone
                    record["folders"].append(parent)
            if is_new:
                try:
                    os.chmod(path, folder["mode"])
                    _give(path, folder["owner"])
                except BaseException:
                    os.rmdir(path)  # so that the next run makes it with its owner
                    raise
        if arguments["prefix"] not in record["folders"] and not record["environment"]:
            record["folders"].insert(0, arguments["prefix"])
    return {}


def _missing(path: str) -> list[str]:
    """Return the missing folders among a folder and its parents, parents first."""
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _give(path: str, account: str) -> None:
    user = find_user(account)
    if user.pw_uid != os.geteuid():
        os.chown(path, user.pw_uid, user.pw_gid)


def write_file(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Write a file; record its digest, and the daemons that must be restarted to read it.

    Args:
        arguments: the ``path`` and ``text`` of the file, the names of these ``daemons``, and
            ``prefix``, the folder of installations.

    Returns:
        An empty record: there is nothing to report.
    """
    path, text = arguments["path"], arguments["text"]
    with changed_manifest(arguments["prefix"]) as record:
        for parent in _missing(os.path.dirname(path)):
            os.mkdir(parent, 0o755)
            record["folders"].append(parent)
        record["to_restart"] = sorted({*record["to_restart"], *arguments["daemons"]})
        record["files"][path] = hashlib.sha256(text.encode("utf-8")).hexdigest()
        replace_file(path, text)
    return {}

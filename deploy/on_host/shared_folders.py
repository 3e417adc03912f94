"""Find out whether folders are the same on all hosts: one host makes a marker file in each."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from pliant.deploy.on_host.host_error import HostError


def make_marker(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Create the marker file in each folder, for the other hosts to find.

    Args:
        arguments: the ``shared`` folders, and ``marker``: the name of the file.

    Returns:
        An empty record: there is nothing to report.
    """
    for folder in arguments["shared"]:
        path = os.path.join(folder, arguments["marker"])
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise HostError(
                f"shared folder {folder}: {(error.strerror or '').lower()}",
                "mount it on the server's host, or correct `shared`",
            ) from None
    return {}


def find_marker(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Check that this host sees the marker file of the server's host in each shared folder.

    Args:
        arguments: the ``shared`` folders, and ``marker``: the name of the file.

    Returns:
        ``missing``: the folders without it, each with the reason.
    """
    missing = {}
    for folder in arguments["shared"]:
        if not os.path.isdir(folder):
            missing[folder] = "it does not exist"
        elif arguments["marker"] not in os.listdir(folder):
            missing[folder] = "it is not the folder of the server's host"
    return {"missing": missing}


def remove_marker(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Remove the marker file from each shared folder in which it exists.

    Args:
        arguments: the ``shared`` folders, and ``marker``: the name of the file.

    Returns:
        An empty record: there is nothing to report.
    """
    for folder in arguments["shared"]:
        try:
            os.unlink(os.path.join(folder, arguments["marker"]))
        except FileNotFoundError:
            pass
    return {}

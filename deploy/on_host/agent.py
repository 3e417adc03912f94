"""Carry out one operation on this host: a line of JSON on stdin, a line of JSON on stdout."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from pliant.deploy.on_host.accounts import PATH, make_account, run_command
from pliant.deploy.on_host.cluster_nodes import list_nodes, run_server_command, wait_node
from pliant.deploy.on_host.daemons import (
    start_daemon,
    start_unit,
    stop_daemon,
    stop_unit,
    use_systemd,
    wait_connected,
)
from pliant.deploy.on_host.files import make_folders, write_file
from pliant.deploy.on_host.host_error import HostError
from pliant.deploy.on_host.probe import probe
from pliant.deploy.on_host.release_environments import install_environment, switch_environment
from pliant.deploy.on_host.removal import remove_all
from pliant.deploy.on_host.shared_folders import find_marker, make_marker, remove_marker

Operation = Callable[[dict[str, Any], BinaryIO], dict[str, Any]]

OPERATIONS: Mapping[str, Operation] = {
    "probe": probe,
    "make-account": make_account,
    "run-command": run_command,
    "make-folders": make_folders,
    "write-file": write_file,
    "install-environment": install_environment,
    "switch-environment": switch_environment,
    "start-daemon": start_daemon,
    "stop-daemon": stop_daemon,
    "wait-connected": wait_connected,
    "run-server-command": run_server_command,
    "list-nodes": list_nodes,
    "wait-node": wait_node,
    "use-systemd": use_systemd,
    "start-unit": start_unit,
    "stop-unit": stop_unit,
    "make-marker": make_marker,
    "find-marker": find_marker,
    "remove-marker": remove_marker,
    "remove-all": remove_all,
}
_REMEDIES = {
    errno.ENOSPC: "free disk space on the host",
    errno.EDQUOT: "free disk space on the host",
    errno.EACCES: "connect as root (`user`), set `sudo: true`, or name other folders",
    errno.EPERM: "connect as root (`user`), or set `sudo: true`",
    errno.EROFS: "name folders of a file system that can be written",
}


def main() -> None:
    """Read a request from stdin, carry it out, and print the answer, both as JSON."""
    request = json.loads(sys.stdin.buffer.readline())
    print(json.dumps(answer(request, sys.stdin.buffer)), flush=True)


def answer(request: dict[str, Any], payload: BinaryIO) -> dict[str, Any]:
    """Carry out a request; return a record of its ``result``, or of ``error`` and ``remedy``.

    Args:
        request: the name of the ``operation``, and its ``arguments``.
        payload: the bytes that follow the request.
    """
    os.environ["PATH"] = PATH
    # Hosts may have a strict umask for root, but the daemons must enter folders that root makes.
    os.umask(0o022)
    try:
        return {"result": OPERATIONS[request["operation"]](request["arguments"], payload)}
    except HostError as error:
        return {"error": str(error), "remedy": error.remedy}
    except subprocess.TimeoutExpired as error:
        return {"error": f"{error.cmd[0]} did not end within {error.timeout:.0f} s", "remedy": ""}
    except OSError as error:
        place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        text = f"{place}{(error.strerror or str(error)).lower()}"
        return {"error": text, "remedy": _REMEDIES.get(error.errno or 0, "")}

"""Ask the server on this host about nodes, and make tokens for them, with its own commands."""

from __future__ import annotations

import io
import json
import os
import time
from typing import Any, BinaryIO

from pliant.deploy.on_host.accounts import run_command
from pliant.deploy.on_host.host_error import HostError
from pliant.deploy.on_host.processes import find_daemons

_POLL_S = 0.3
#: States of nodes that the server does not use because it does not hear of them.
_ABSENT = {"LOST", "UNKNOWN"}


def run_server_command(arguments: dict[str, Any], payload: BinaryIO) -> dict[str, Any]:
    """Run a command of Pliant on the server's host, as the account of the server.

    Args:
        arguments: ``words``, the name of the command and its arguments, and the arguments of
            `run_command` except ``argv``.
        payload: the input of the command.

    Returns:
        The exit ``code`` and ``stdout``.
    """
    server = find_daemons(arguments["prefix"]).get("server")
    if server is None:
        raise HostError("no server runs on its host", "deploy the host of the server first")
    program, *words = arguments["words"]
    argv = [os.path.join(server.environment, "bin", program), *words]
    return run_command({**arguments, "argv": argv}, payload)


def list_nodes(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Return a record with the entry ``nodes``: the state and the used slots of each node by name.

    The entry is empty if the server does not answer.

    Args:
        arguments: those of `run_command` except ``argv``, and ``prefix``, the folder of
            installations.
    """
    words = ["nodestat", "--json"]
    done = run_server_command({**arguments, "words": words, "may_fail": True}, io.BytesIO())
    if done["code"] != 0:
        return {"nodes": {}}
    found = json.loads(done["stdout"])
    return {"nodes": {each["name"]: [each["state"], each.get("used") or 0] for each in found}}


def wait_node(arguments: dict[str, Any], payload: BinaryIO) -> dict[str, Any]:
    """Wait until the server lists a node as connected, and return a record with its ``state``.

    Args:
        arguments: the name of the ``node``, ``timeout_s``, and the arguments of `list_nodes`.
        payload: not used.

    Raises:
        HostError: the node is still unknown or lost after ``timeout_s``.
    """
    name, deadline = arguments["node"], time.monotonic() + arguments["timeout_s"]
    while True:
        state = list_nodes(arguments, payload)["nodes"].get(name, ["UNKNOWN", 0])[0]
        if state not in _ABSENT:
            return {"state": state}
        if time.monotonic() > deadline:
            raise HostError(f"the server has node {name} as {state}", "see the server's log")
        time.sleep(_POLL_S)

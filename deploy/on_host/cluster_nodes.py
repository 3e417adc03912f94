"""Ask the server on this host about nodes, with its own commands."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any, BinaryIO

from pliant.deploy.on_host.accounts import environment, run_as
from pliant.deploy.on_host.host_error import HostError

_POLL_S = 0.3
#: States of nodes that the server does not use because it does not hear of them.
_ABSENT = {"LOST", "UNKNOWN"}


def list_nodes(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Return state and used slots of each node; none if the server does not answer."""
    done = subprocess.run(
        [f"{arguments['prefix']}/current/bin/nodestat", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        cwd="/",
        env=environment(arguments),
        timeout=60,
        **run_as(arguments["account"]),
    )
    if done.returncode != 0:
        return {"nodes": {}, "error": done.stderr.decode("utf-8", "replace").strip()}
    found = {
        each["name"]: [each["state"], each.get("used") or 0] for each in json.loads(done.stdout)
    }
    return {"nodes": found, "error": ""}


def wait_node(arguments: dict[str, Any], payload: BinaryIO) -> dict[str, Any]:
    """Wait until the server has a node that is not lost."""
    name, deadline = arguments["node"], time.monotonic() + arguments["timeout_s"]
    while True:
        found = list_nodes(arguments, payload)
        state = found["nodes"].get(name, ["UNKNOWN", 0])[0]
        if state not in _ABSENT:
            return {"state": state}
        if time.monotonic() > deadline:
            said = found["error"] or f"node {name} is {state}"
            raise HostError(f"the server does not use the node: {said}", "see the server's log")
        time.sleep(_POLL_S)

"""The daemons of a host: how each is started, stopped and watched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pliant.deploy.planning.cluster import Cluster, Host, Role
from pliant.deploy.planning.settings_files import UNITS, settings_path
from pliant.deploy.planning.steps import Payload, Phase, Step

#: How long the controller may take to reach the server.
_CONNECT_TIMEOUT_S = 60


def daemon_names(cluster: Cluster, host: Host) -> list[str]:
    """Return the daemons of a host in the order of their start."""
    names = []
    if Role.SERVER in host.roles:
        names.append("server")
    if Role.NODE in host.roles:
        names += ["helper", "node"] if cluster.has_helper else ["node"]
    if Role.LOGIN in host.roles:
        names.append("login")
    return names


def account_arguments(cluster: Cluster, host: Host) -> dict[str, Any]:
    """Return the arguments for operations on a host that run programs as the daemons' account.

    They are the name of the account and the folders of Pliant on the host.
    """
    folders = host.folders
    return {
        "prefix": folders.prefix,
        "account": cluster.account,
        "state": folders.state,
        "run": folders.run,
    }


def log_path(host: Host, daemon: str) -> str:
    """Return the path of the log of a daemon that systemd does not start."""
    return os.path.join(host.folders.state, f"{daemon}.log")


def start_step(
    cluster: Cluster, host: Host, name: str, environment: str, *, systemd: bool, is_restart: bool
) -> Step:
    """Return the step that starts or restarts a daemon with the programs of a release.

    Args:
        cluster: the hosts file.
        host: one of its hosts.
        name: the name of the daemon.
        environment: the name of the Python environment of the release.
        systemd: whether systemd starts the daemon.
        is_restart: whether the daemon is running already.
    """
    text = f"{'restart' if is_restart else 'start'} {name} from {environment}"
    base = account_arguments(cluster, host)
    if systemd:
        arguments = {**base, "daemon": name, "unit": UNITS[name]}
        return Step(text, "start-unit", arguments, phase=Phase.START, is_restart=is_restart)
    arguments = {
        **base,
        "daemon": name,
        "argv": _argv(host, name, host.folders.environment(environment)),
        "log": log_path(host, name),
    }
    if name == "helper":
        arguments |= {"account": "root", "log": "/var/lib/pliant-helper/helper.log"}
    return Step(text, "start-daemon", arguments, phase=Phase.START, is_restart=is_restart)


def _argv(host: Host, name: str, environment: str) -> list[str]:
    program = os.path.join(environment, "bin", "pliant")
    match name:
        case "helper":
            python = os.path.join(environment, "bin", "python")
            return [python, "-I", "-m", "pliant.nodectl.root_helper"]
        case "login":
            return [program, "login-agent"]
        case "server":
            return [program, "server", "--config", settings_path(host, "server.yaml")]
    return [program, "nodectl", "--config", settings_path(host, "node.yaml")]


def stop_steps(cluster: Cluster, host: Host, running: Iterator[str] | list[str]) -> Iterator[Step]:
    """Yield steps that stop the daemons in ``running``, the last of them first."""
    for name in reversed(list(running)):
        arguments = {**account_arguments(cluster, host), "daemon": name}
        yield Step(f"stop {name}", "stop-daemon", arguments, phase=Phase.START)


def join_step(cluster: Cluster, host: Host, environment: str) -> Step:
    """Return the step with which a host becomes a node or login host."""
    program = os.path.join(host.folders.environment(environment), "bin", "pliant")
    argv = [program, "node", "join", "-"]
    arguments = account_arguments(cluster, host)
    if cluster.has_helper and Role.NODE in host.roles:
        argv += ["--account", cluster.account]
        arguments["as_root"] = True
    kind = "node" if Role.NODE in host.roles else "login host"
    return Step(
        f"join cluster {cluster.name} as {kind} {host.name}, with a token of the server's host",
        "run-command",
        {**arguments, "argv": argv},
        payload=Payload.TOKEN,
        phase=Phase.START,
    )


def token_arguments(cluster: Cluster, host: Host) -> dict[str, Any]:
    """Return the arguments of `run_server_command` that make a join token for a host.

    With the token, the host becomes a node or login host of the cluster (`join_step`).
    """
    if Role.NODE in host.roles:
        slots = [] if host.slots is None else ["--slots", str(host.slots)]
        which = ["--node", host.name, *slots]
    else:
        which = ["--login-agent", host.name]
    port = int(cluster.listen.rpartition(":")[2]) + 2
    words = ["pliant", "cluster", "token", *which, "--server", f"{cluster.server_address}:{port}"]
    return {**account_arguments(cluster, cluster.server), "words": words}


def wait_steps(cluster: Cluster, host: Host) -> Iterator[Step]:
    """Yield steps that wait until a host's node controller is connected and the server uses it."""
    port = int(cluster.listen.rpartition(":")[2])
    arguments = {
        "prefix": host.folders.prefix,
        "daemon": "node",
        "port": port,
        "log": log_path(host, "node"),
        "timeout_s": _CONNECT_TIMEOUT_S,
    }
    yield Step("wait for its connection", "wait-connected", arguments, phase=Phase.START)
    yield Step(
        "wait until the server uses it",
        "wait-node",
        {**account_arguments(cluster, cluster.server), "node": host.name, "timeout_s": 60},
        phase=Phase.START,
        on_server=True,
    )

"""The settings files and systemd files that a host gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from pliant.deploy.planning.cluster import Cluster, Host, Role
from pliant.deploy.unit_files import Installation, make_files

#: Folders that the root helper and the users' socket have, unless the helper is not used.
HELPER_RUN, USERS_DIR, HELPER_STATE = "/run/pliant", "/run/pliant/users", "/var/lib/pliant-helper"
HELPER_SOCKET = f"{HELPER_RUN}/helper.sock"
#: Files that `pliant node join --account` writes for the root helper.
HELPER_FILES = ("helper.json", "order.pub")
_HEAD = "# Written by `pliant deploy` from the hosts file. A file that is edited is kept.\n"


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file that the deployment writes to a host: path, text, and the daemons that read it."""

    path: str
    text: str
    #: The daemons that read it at their start.
    daemons: tuple[str, ...]
    #: Whether it is kept if it was edited on the host.
    is_setting: bool


def settings_path(host: Host, name: str) -> str:
    """Return the path of the settings file ``name``, such as that of a daemon, on a host."""
    return os.path.join(host.folders.config, name)


def settings_files(cluster: Cluster, host: Host) -> Iterator[ExpectedFile]:
    """Yield the settings files of a host's daemons."""
    if Role.SERVER in host.roles:
        text = _dump(_server_settings(cluster))
        yield ExpectedFile(settings_path(host, "server.yaml"), text, ("server",), True)
    if Role.NODE in host.roles:
        text = _dump(_node_settings(cluster, host))
        yield ExpectedFile(settings_path(host, "node.yaml"), text, ("node",), True)
    if cluster.has_helper and host.roles & {Role.SERVER, Role.LOGIN}:
        text = _dump({"server_user": cluster.account, "users_dir": USERS_DIR})
        yield ExpectedFile(settings_path(host, "client.yaml"), text, (), True)


def unit_files(cluster: Cluster, host: Host, environment: str) -> Iterator[ExpectedFile]:
    """Yield the systemd files of a host, whose units start programs of a Python environment."""
    programs = os.path.join(environment, "bin")
    installation = Installation(
        pliant=os.path.join(programs, "pliant"),
        python=os.path.join(programs, "python"),
        writable=(cluster.checkpoints,) if cluster.checkpoints else (),
    )
    roles = {"login-agent" if role is Role.LOGIN else str(role) for role in host.roles}
    if cluster.has_helper and Role.NODE in host.roles:
        roles.add("helper")
    for file in make_files(roles, installation):
        if not file.is_setting or file.path == "pliant/daemon.env":
            daemons = tuple(name for name, unit in UNITS.items() if f"/{unit}." in file.path)
            yield ExpectedFile(f"/etc/{file.path}", file.text, daemons, file.is_setting)


#: The unit of each daemon.
UNITS = {
    "server": "pliant-server",
    "helper": "pliant-helper",
    "node": "pliant-nodectl",
    "login": "pliant-login-agent",
}


def _server_settings(cluster: Cluster) -> dict[str, Any]:
    settings: dict[str, Any] = {"listen": cluster.listen}
    if cluster.listen_users:
        settings["listen_users"] = cluster.listen_users
    if cluster.has_helper:
        settings |= {"users": "all", "users_dir": USERS_DIR}
    return settings | dict(cluster.server_settings)


def _node_settings(cluster: Cluster, host: Host) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if cluster.has_helper:
        settings["helper"] = HELPER_SOCKET
    if host.slots is not None:
        settings["slots"] = host.slots
    if host.interface:
        settings["interface"] = host.interface
    return settings


def _dump(settings: dict[str, Any]) -> str:
    return _HEAD + (yaml.safe_dump(settings, sort_keys=False) if settings else "")

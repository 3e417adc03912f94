"""The hosts of a cluster and what is to run on them, as ``hosts.yaml`` describes them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pliant.client.client_errors import UsageError
from pliant.core.support.plural import plural


class Role(StrEnum):
    """The roles of a host: server, node or login host."""

    SERVER = "server"
    NODE = "node"
    LOGIN = "login"


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of Pliant on a host, for programs, state, sockets and settings."""

    #: Environments: one folder for each release.
    prefix: str = "/opt/pliant"
    #: State of the daemons.
    state: str = "/var/lib/pliant"
    #: Sockets and pid files.
    run: str = "/run/pliant-daemons"
    #: Settings of the daemons.
    config: str = "/etc/pliant"

    def environment(self, name: str) -> str:
        """Return the folder of the Python environment ``name``, which contains one release."""
        return os.path.join(self.prefix, name)


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the cluster, its roles and its SSH settings."""

    name: str
    roles: frozenset[Role]
    address: str
    #: 0 for the port of `~/.ssh/config`, or the usual one.
    port: int
    user: str
    #: Path of the private key; empty for the SSH agent and the usual keys.
    key: str
    #: Jump hosts as for `ssh -J`; empty for those of `~/.ssh/config`, "none" for none.
    jump: str
    sudo: bool
    #: Path of the interpreter on the host.
    python: str
    #: The network interface of MPI messages; empty if the controller chooses.
    interface: str
    #: The slots of a node; None for one for each processor.
    slots: int | None
    folders: Folders


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as the hosts file describes it."""

    name: str
    hosts: tuple[Host, ...]
    #: Where the server listens for nodes, as HOST:PORT.
    listen: str
    #: Where it listens for login hosts; empty if there are none.
    listen_users: str
    account: str
    #: Whether jobs run as their users, which needs root on each host.
    has_helper: bool
    #: ``systemd``, ``plain``, or ``auto`` for systemd where it runs.
    service: str
    #: File with the keys of hosts; empty for those of the user and of this machine.
    known_hosts: str
    #: Folder of the wheels on this machine; empty if `--wheelhouse` names it.
    wheelhouse: str
    #: Folders that must be the same on all hosts.
    shared: tuple[str, ...]
    #: Accounts that must have the same ids on all hosts.
    users: tuple[str, ...]
    #: Further names and addresses for the certificate of the server.
    addresses: tuple[str, ...]
    #: Further settings of the server.
    server_settings: Mapping[str, Any]

    @property
    def server(self) -> Host:
        """Return the host on which the server runs."""
        return next(host for host in self.hosts if Role.SERVER in host.roles)

    @property
    def checkpoints(self) -> str:
        """Return the folder of checkpoints; empty if there is none."""
        return str(self.server_settings.get("checkpoints") or "")

    @property
    def server_address(self) -> str:
        """Return the address at which hosts reach the server."""
        if self.listen.startswith(("0.0.0.0:", "[::]:")):
            return self.addresses[0]
        return self.listen.rpartition(":")[0].strip("[]")

    def select(self, names: Collection[str]) -> tuple[Host, ...]:
        """Return the hosts with these names, or all if there are no names.

        Raises:
            UsageError: the file has no such host.
        """
        known = {host.name for host in self.hosts}
        if unknown := sorted(set(names) - known):
            raise UsageError(
                f"--limit: {', '.join(unknown)}: not among the {plural(len(known), 'host')} of the "
                "file"
            )
        return tuple(host for host in self.hosts if not names or host.name in names)

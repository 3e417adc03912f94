"""Hosts of a network of their own, each with a root helper and a controller of the account."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from helperkit.helper import ACCOUNT, Helper
from helperkit.identity import acting_as
from helperkit.site import Site, give_to_account, start_daemon
from netkit.network import Network
from testkit import wait_until
from tlskit import Membership, tls_addresses


class Host(Helper):
    """A host in a network, with a node of the cluster."""

    def __init__(self, network: Network, name: str, slots: int) -> None:
        super().__init__()
        self.network, self.name, self.slots = network, name, slots
        self.node = self.base / "account"
        self.controller: subprocess.Popen[bytes] | None = None
        self.configure(node=name)

    def in_host(self, program: list[str]) -> list[str]:
        """Return a command that runs on this host."""
        return [*self.network.inside(self.name), *super().in_host(program)]

    def join(self, membership: Membership, server: str) -> None:
        """Get an identity, as root and the account do it, and start helper and controller."""
        (self.etc / "order.pub").write_bytes((membership.directory / "order.pub").read_bytes())
        settings = {"slots": self.slots, "helper": str(self.run / "helper.sock")}
        (self.base / "node.yaml").write_text(json.dumps(settings))
        self.node.mkdir()
        give_to_account(self.node)
        with acting_as(ACCOUNT):
            membership.join(self.node, self.name, [server], self.slots)
        self.start()
        words = ("pliant.nodectl", "--config", "node.yaml")
        self.controller = start_daemon(self, "node", self.node, words)

    def close(self) -> None:
        """End everything on this host, and remove its folder."""
        try:
            if self.controller is not None:
                self.controller.terminate()
                self.controller.wait(60)
        finally:
            super().close()

    def node_log(self) -> str:
        """Return what the controller has logged."""
        path = self.base / "node.log"
        return path.read_text() if path.exists() else ""


class SiteOfHosts(Site):
    """A server on a host of its own, and a node on each of the other hosts of a network."""

    def __init__(self, network: Network, nodes: Mapping[str, int]) -> None:
        """Prepare the hosts.

        Args:
            network: in which each node is a host.
            nodes: the slots of each node by name.
        """
        self.network = network
        super().__init__(address=network.server)
        self.hosts: dict[str, Host] = {}
        try:
            for name, slots in nodes.items():
                self.hosts[name] = Host(network, name, slots)
        except BaseException:
            self.close()
            raise

    def in_host(self, program: list[str]) -> list[str]:
        """Return a command that runs on the host of the server."""
        return [*self.network.inside("server"), *super().in_host(program)]

    def up(self) -> None:
        """Start the server, and then each node."""
        self.start_server()
        server = tls_addresses(self.server / "run")["nodes"]
        for host in self.hosts.values():
            host.join(self.membership, server)
        wait_until(self._are_up, what="the nodes", timeout=90)

    def _are_up(self) -> bool:
        states = {node.name: node.state for node in self.as_user(0).nodes()}
        return states == dict.fromkeys(self.hosts, "UP")

    def report(self, uid: int, job: int) -> str:
        """Return all that is known about a job."""
        logs = [text for host in self.hosts.values() for text in (host.log(), host.node_log())]
        server = (self.base / "server.log").read_text()
        events = [str(event) for event in self.as_user(uid).history(job)]
        return "\n".join([str(self.as_user(uid).job(job)), *events, server, *logs])

    def jobs_folders(self) -> list[Path]:
        """Return the private folders of jobs on all hosts."""
        return [path for host in self.hosts.values() for path in (host.run / "jobs").iterdir()]

    def close(self) -> None:
        """End everything on all hosts, and remove all folders."""
        with ExitStack() as stack:
            stack.callback(super().close)
            for host in self.hosts.values():
                stack.callback(host.close)

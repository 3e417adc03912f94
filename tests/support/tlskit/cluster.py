"""A cluster over TLS on this machine: each node has state and run folders of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clusterkit.cluster import Cluster
from netkit.network import Network
from pliant.client.api import Client
from testkit.waiting import wait_until
from tlskit import Membership, tls_addresses


class TlsCluster(Cluster):
    """A server, and nodes that have joined it."""

    #: Where the server listens.
    host = "127.0.0.1"

    def __init__(self, base: Path, nodes: Mapping[str, int]) -> None:
        """Prepare a cluster.

        Args:
            base: folder of everything; its path must be short.
            nodes: the slots of each node by name.
        """
        super().__init__(base, len(nodes), 2, "fcfs")
        self.membership = Membership(self.state)
        self.slots_of = dict(nodes)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Start the server; let each node join, and start its controller."""
        self.start_server()
        for name, slots in self.slots_of.items():
            self.join(name, slots)
            self.start_node(name, "--slots", str(slots))
        self.client = Client(str(self.run))
        try:
            wait_until(
                lambda: self.states() == dict.fromkeys(self.slots_of, "UP"), what="the nodes"
            )
        except AssertionError as error:
            logs = "\n".join(map(self.log, self.processes))
            raise AssertionError(f"{error}\n{logs}") from None

    def down(self) -> None:
        """End the daemons; the server last."""
        self.client.close()
        with ExitStack() as stack:
            for process in self.processes.values():
                stack.callback(process.wait, timeout=30)
                process.terminate()
        self.processes.clear()

    def start_server(self) -> None:
        """Start the server on ports of its own choice."""
        words = ["--strategy", "fcfs", "--listen", f"{self.host}:0"]
        self._start("server", self.state, self.run, ["pliant.server", *words])
        wait_until((self.run / "server.address").exists, what="the server")

    def join(self, name: str, slots: int | None, **more: Any) -> Path:
        """Write the identity of a node."""
        servers = [tls_addresses(self.run)["nodes"]]
        return self.membership.join(self.folder(name), name, servers, slots, **more)

    def start_node(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start the controller of a node that has joined."""
        folder = self.folder(name)
        return self._start(name, folder, folder / "run", ["pliant.nodectl", *words])

    def folder(self, name: str) -> Path:
        """Return the state folder of a node."""
        return self.base / name

    def states(self) -> dict[str, str]:
        """Return the states of the nodes by name."""
        return {node.name: node.state for node in self.client.nodes()}

    def log(self, name: str) -> str:
        """Return what ``server`` or a node has logged."""
        return (self.base / f"{name}.log").read_text(errors="replace")

    def _is_rank(self, env: dict[str, str], number: int) -> bool:
        own = env.get("PLIANT_TOKEN_FILE", "").startswith(f"{self.base}/")
        return own and env.get("PLIANT_JOB") == str(number) and "PLIANT_PROCESSOR" in env

    def _start(
        self, name: str, state: Path, run: Path, words: list[str]
    ) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PLIANT_STATE_DIR": str(state), "PLIANT_RUN_DIR": str(run)}
        with (self.base / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self._inside(name), sys.executable, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        return self.processes[name]

    def _inside(self, name: str) -> list[str]:
        """Return what goes before the command of a daemon."""
        return []


class ApartTlsCluster(TlsCluster):
    """A cluster whose daemons are on hosts of their own in a network."""

    def __init__(self, base: Path, network: Network, nodes: Mapping[str, int]) -> None:
        super().__init__(base, nodes)
        self._network = network
        self.host = network.server

    def _inside(self, name: str) -> list[str]:
        return self._network.inside(name)

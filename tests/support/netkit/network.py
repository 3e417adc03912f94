"""Hosts of a network of their own, whose links can be taken away; needs root.

Each host is a network namespace, connected by a pair of veth to a switch in the namespace of the
server. Nothing is added to the machine's own network, and no packet can leave. The server listens
on loopback addresses alone, so the network has such: no namespace takes them for its own here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from clusterkit.cluster import Cluster
from pliant.client.api import Client
from testkit.waiting import wait_until

SUBNET = "127.77.0"
SERVER = f"{SUBNET}.1"
PORT = 7070
#: What a link to a host is called in its namespace.
_LINK = "uplink"
#: A queue that takes nothing.
_NO_ROOM = ("root", "pfifo", "limit", "0")

_networks = count(1)


class NetworkError(Exception):
    """The network cannot be made here; the text says why."""


class Network:
    """The server's namespace and those of some nodes."""

    def __init__(self, nodes: Sequence[str], subnet: str = SUBNET) -> None:
        """Prepare a network.

        Args:
            nodes: the names of the hosts of nodes.
            subnet: the first three numbers of all addresses; a server without the identity of a
                cluster needs those of loopback.
        """
        self._prefix = f"pliant-{os.getpid()}-{next(_networks)}"
        self._addresses = {name: f"{subnet}.{number}" for number, name in enumerate(nodes, 11)}
        self.server = f"{subnet}.1"
        self._made: list[str] = []

    def address(self, node: str) -> str:
        """Where others reach a node."""
        return self._addresses[node]

    def namespace(self, host: str) -> str:
        """The namespace of ``server`` or of a node."""
        return f"{self._prefix}-{host}"

    def inside(self, host: str) -> list[str]:
        """Return what goes before a command that is to run on a host; it is that process."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(host)}", "--"]

    # ---------------------------------------------------------------- up and down

    def up(self) -> None:
        """Make all of it, or raise NetworkError."""
        if os.geteuid() != 0:
            raise NetworkError("only root may make network namespaces")
        try:
            self._add_host("server")
            self._ip("server", "link", "add", "switch", "type", "bridge")
            self._ip("server", "addr", "add", f"{self.server}/24", "dev", "switch")
            self._ip("server", "link", "set", "switch", "up")
            for node in self._addresses:
                self._add_host(node)
                self._connect(node)
                with self.mute(node):
                    pass  # it can be done
        except NetworkError:
            self.down()
            raise

    def down(self) -> None:
        """Remove all that was made. A pair of veth goes with either of its ends."""
        for node in self._addresses:
            with suppress(NetworkError):
                self._ip("server", "link", "del", f"to-{node}")
        for host in self._made:
            _run("ip", "netns", "del", self.namespace(host))
        self._made.clear()

    def _add_host(self, host: str) -> None:
        _run("ip", "netns", "add", self.namespace(host))
        self._made.append(host)
        self._ip(host, "link", "set", "lo", "up")
        self._ip(host, "addr", "del", "127.0.0.1/8", "dev", "lo")
        self._ip(host, "addr", "add", "127.0.0.1/32", "dev", "lo")
        accept = "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"
        _run(*self.inside(host), "sh", "-c", accept)

    def _connect(self, node: str) -> None:
        far = ["peer", "name", _LINK, "netns", self.namespace(node)]
        self._ip("server", "link", "add", f"to-{node}", "type", "veth", *far)
        self._ip("server", "link", "set", f"to-{node}", "master", "switch", "up")
        self._ip(node, "addr", "add", f"{self.address(node)}/24", "dev", _LINK)
        self._ip(node, "link", "set", _LINK, "up")

    def _ip(self, host: str, *words: str) -> None:
        _run("ip", "-n", self.namespace(host), *words)

    # ---------------------------------------------------------------- faults

    @contextmanager
    def cut(self, node: str) -> Iterator[None]:
        """Have the link of a node down."""
        self._ip("server", "link", "set", f"to-{node}", "down")
        try:
            yield
        finally:
            self._ip("server", "link", "set", f"to-{node}", "up")

    @contextmanager
    def mute(self, node: str) -> Iterator[None]:
        """Have nothing that a node sends arrive."""
        with self._without_room(self.namespace(node), _LINK):
            yield

    @contextmanager
    def deaf(self, node: str) -> Iterator[None]:
        """Have nothing arrive that is sent to a node."""
        with self._without_room(self.namespace("server"), f"to-{node}"):
            yield

    @contextmanager
    def _without_room(self, namespace: str, device: str) -> Iterator[None]:
        _run("tc", "-n", namespace, "qdisc", "add", "dev", device, *_NO_ROOM)
        try:
            yield
        finally:
            _run("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")

    @contextmanager
    def bad(self, node: str, delay_s: float, loss: float) -> Iterator[None]:
        """Have all that comes and goes late, and some of it not at all, from now on.

        The link goes through a process then (see `netkit.wire`), as not every kernel has netem.
        """
        near, far = f"near-{node}", f"far-{node}"
        port = f"to-{node}"
        self._ip("server", "link", "set", port, "nomaster")
        self._ip("server", "link", "add", near, "type", "veth", "peer", "name", far)
        self._ip("server", "link", "set", near, "master", "switch", "up")
        self._ip("server", "link", "set", far, "up")
        words = [sys.executable, "-m", "netkit.wire", port, far, str(delay_s), str(loss)]
        wire = subprocess.Popen(
            [*self.inside("server"), *words],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        try:
            assert wire.stdout is not None
            assert wire.stdout.readline() == b"connected\n"
            yield
        finally:
            wire.kill()
            wire.communicate()
            self._ip("server", "link", "del", near)
            self._ip("server", "link", "set", port, "master", "switch")


class ApartCluster(Cluster):
    """A cluster each of whose daemons is on a host of its own in a network."""

    def __init__(self, base: Path, network: Network, nodes: Sequence[str], slots: int) -> None:
        super().__init__(base, len(nodes), slots, "fcfs")
        self.network, self.names = network, nodes
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self, settings: str) -> None:
        """Start the server, with such a configuration, and the controllers."""
        config = self.base / "server.yaml"
        config.write_text(settings)
        words = ["--config", str(config), "--strategy", "fcfs", "--listen", f"{SERVER}:{PORT}"]
        self._start("server", ["pliant.server", *words])
        wait_until((self.run / "server.address").exists, what="the server")
        for name in self.names:
            words = ["--name", name, "--slots", str(self.slots), "--server", f"{SERVER}:{PORT}"]
            words += ["--address", self.network.address(name), "--interface", "lo"]
            words += ["--secret-file", str(self.state / "node.secret")]
            self._start(name, ["pliant.nodectl", *words])
        self.client = Client(str(self.run))
        wait_until(lambda: self.states() == dict.fromkeys(self.names, "UP"), what="the nodes")
        self.uses.rest(jobs=0)

    def states(self) -> dict[str, str]:
        """The states of the nodes by name."""
        return {node.name: node.state for node in self.client.nodes()}

    def log(self, host: str) -> str:
        """What ``server`` or a node has said."""
        return (self.state / f"{host}.log").read_text(errors="replace")

    def stop(self) -> None:
        """End the daemons."""
        self.client.close()
        with ExitStack() as stack:
            for daemon in self._daemons:
                stack.callback(daemon.wait, timeout=30)
                daemon.terminate()
        self._daemons.clear()

    def _start(self, host: str, words: Sequence[str]) -> None:
        with open(self.state / f"{host}.log", "ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    [*self.network.inside(host), sys.executable, "-m", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )


def _run(*words: str) -> None:
    """Run a command that needs root; what it says becomes the error."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NetworkError(f"{words[0]}: {error.strerror}") from None
    if done.returncode:
        raise NetworkError(f"{' '.join(words)}: {done.stderr.strip()}")

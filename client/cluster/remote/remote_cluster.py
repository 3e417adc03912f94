"""Common parts of clusters with nodes on other hosts and the server on this machine."""

from __future__ import annotations

from dataclasses import replace

from pliant.client.cluster.cluster_spec import ClusterSpec, RemoteSpec, load_spec
from pliant.client.cluster.daemons import Daemon
from pliant.client.cluster.local_cluster import LocalCluster
from pliant.client.cluster.remote.host_admission import HostAdmission
from pliant.core.support.plural import plural
from pliant.protos.address import TcpAddress

#: Listening on all interfaces, for hosts that reach this machine at different addresses.
_ALL_INTERFACES = "0.0.0.0"


class RemoteCluster(LocalCluster):
    """A server on this machine that listens for nodes of other hosts."""

    @property
    def remote(self) -> RemoteSpec:
        """Return the part of the specification that is about other hosts."""
        assert self.spec.remote is not None
        return self.spec.remote

    @property
    def admission(self) -> HostAdmission:
        """Return the object that admits hosts to the cluster."""
        return HostAdmission(self.state)

    def _server_options(self, spec: ClusterSpec) -> list[str]:
        listen = self._listen_address(spec)
        return [*super()._server_options(spec), *(["--listen", listen] if listen else [])]

    def _listen_address(self, spec: ClusterSpec) -> str:
        """Return HOST:PORT at which the server listens; empty if it is not known yet."""
        raise NotImplementedError

    def check(self, spec: ClusterSpec) -> None:
        """Create the cluster's identity, then start the server once to check its options."""
        self._make_directories()
        self.admission.ensure_identity()
        super().check(spec)

    def reload_spec(self) -> None:
        """Read the specification in the state directory again.

        If the stored specification has no hosts, this object keeps the hosts that it has now.
        """
        saved = load_spec(self.state) or ClusterSpec()
        self.spec = saved if saved.remote else replace(saved, remote=self.remote)
        self._build()

    def describe(self) -> str:
        """Return as text how many nodes are up, and which."""
        up, wanted = sorted(self.registered() or ()), len(self.spec.node_names)
        some = f"{len(up)} of " if len(up) < wanted else ""
        return f"{some}{plural(wanted, 'node')} on other hosts ({', '.join(up)})"

    def _node_daemons(self) -> list[Daemon]:
        return []

    def _may_remove(self, node: str) -> bool:
        return True

    def _node_options(self) -> tuple[str, ...]:
        """Return the command-line options that all node controllers get."""
        options: list[str] = []
        if self.remote.interface:
            options += ["--interface", self.remote.interface]
        if self.spec.transport:
            options += ["--transport", self.spec.transport]
        if self.spec.most_processes:
            options += ["--most-processes", str(self.spec.most_processes)]
        return tuple(options)


def listen_address(chosen: str, own: set[str]) -> str:
    """Return the HOST:PORT at which the server is to listen; port 0 lets the server choose one.

    Args:
        chosen: HOST or HOST:PORT that the user has chosen, or an empty text. Only its port is used.
        own: the addresses of this machine from which it reaches the hosts. If there is only one,
            the server listens on it, otherwise on all interfaces.
    """
    port = chosen.removeprefix(f"[{host_of(chosen)}]").removeprefix(host_of(chosen)).lstrip(":")
    host = min(own) if len(own) == 1 else _ALL_INTERFACES
    return str(TcpAddress(host, int(port or "0")))


def host_of(chosen: str) -> str:
    """Return the HOST of a text that is HOST, HOST:PORT, or an IPv6 address in brackets."""
    host = chosen.partition("]")[0] if chosen.startswith("[") else chosen.partition(":")[0]
    return host.strip("[]")


def is_loopback(address: str) -> bool:
    """Return whether only processes of this machine can use an address."""
    return address.startswith("127.") or address == "::1"

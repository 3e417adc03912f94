"""Open the server's listeners, each with its services.

The local endpoint is a unix-domain socket, or a port of a loopback interface. It serves the nodes
and applications of this host, whose processes the server's owner has started. If the cluster has an
identity (its own certificates) and an address is configured, there are three more endpoints, over
TLS. One is for nodes, which show their certificates before any message is read. One is for
applications, which prove that they know the token of their run. One is for hosts that join the
cluster with a join token.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from pliant.core.events import NodeRegistered
from pliant.protos.address import Address, TcpAddress, parse_address
from pliant.protos.daemons.atomic_files import write_whole
from pliant.server.authentication.app_tokens import AppTokens
from pliant.server.checkpoints.shared_folder_probe import SharedFolderProbe
from pliant.server.config import Config
from pliant.server.execution.connections import Connections
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.registry.status_cache import StatusCache
from pliant.server.rpc.app_service import AppService
from pliant.server.rpc.checkpoint_removals import CheckpointRemovals
from pliant.server.rpc.exit_collector import ExitCollector
from pliant.server.rpc.grpc_server import (
    Endpoint,
    GrpcServer,
    application_service,
    node_service,
    staging_service,
)
from pliant.server.rpc.node_authentication import (
    CertificateAuthenticator,
    NodeAuthenticator,
    SecretAuthenticator,
)
from pliant.server.rpc.node_list import NodeList
from pliant.server.rpc.node_service import NodeService, ServerIdentity
from pliant.server.rpc.pmi_barriers import BarrierService
from pliant.server.rpc.report_validation import ReportValidator
from pliant.server.rpc.staging.staging_service import StagingService
from pliant.server.support.clock import HybridClock
from pliant.server.support.rate_limit import RateLimiter
from pliant.server.user_requests.step_resizes import StepResizes

if TYPE_CHECKING:  # a server for one host needs no certificates, which take long to import
    from pliant.server.authentication.node_admission import NodeAdmission
    from pliant.server.authentication.tls_files import TlsFiles
    from pliant.server.login_hosts.login_host_listener import LoginHosts
    from pliant.server.node_joining.node_joining_listener import JoiningListener
    from pliant.server.rpc.certified_nodes import CertifiedNodes

log = logging.getLogger(__name__)

#: The file in the run folder with the addresses for other hosts.
ADDRESSES_FILE = "cluster.addresses"
#: Keys of the stored ports, by name of the address.
_PORTS = {
    "local": "port",
    "nodes": "port.nodes",
    "applications": "port.applications",
    "joining": "port.joining",
    "users": "port.users",
}
#: Shares of the connections: many nodes, and an application for each job.
_SHARES = {"local": 0.25, "nodes": 0.375, "applications": 0.375}


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """The parts of the server that the services use."""

    core_loop: CoreLoop
    connections: Connections
    nodelist: NodeList
    remove: ExitCollector
    barriers: BarrierService
    validator: ReportValidator
    status: StatusCache
    tokens: AppTokens
    clock: HybridClock
    rate_limiter: RateLimiter
    #: Called with the registration of each node.
    on_node_registered: Callable[[NodeRegistered], None]
    #: Finds out which nodes share the folder of checkpoints.
    shared_folder: SharedFolderProbe
    #: Has nodes remove the checkpoints of users.
    removals: CheckpointRemovals
    #: Passes requests for sizes of steps to the shims of scripts.
    step_resizes: StepResizes
    #: Transfers the staged files of jobs.
    staging: StagingService


@dataclass(frozen=True, slots=True)
class Listening:
    """The addresses on which the server listens."""

    #: On this host, without TLS.
    local: str
    #: Over TLS, by name; empty without TLS.
    tls: Mapping[str, str]
    #: Ports to use again at the next start, by their keys in the database.
    ports: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Tls:
    files: TlsFiles
    admission: NodeAdmission
    certified: CertifiedNodes


class Services:
    """The services for nodes and applications, on the addresses of a configuration."""

    def __init__(self, parts: ServiceParts, config: Config, generation: int, secret: str) -> None:
        """Prepare the services; read the identity of the cluster if the configuration needs it.

        Raises:
            StoredIdentityError, UntrustedPathError, OSError: the identity cannot be used.
        """
        self._parts, self._config, self._secret = parts, config, secret
        self._generation, self._instance_id = generation, secrets.token_hex(8)
        self._tls = self._load_tls() if config.uses_tls else None
        self._joining: JoiningListener | None = None
        #: The port for login hosts, None if there is none.
        self.login_hosts: LoginHosts | None = None

    def listen(
        self, server: GrpcServer, meta: Mapping[str, str], on_fault: Callable[[str], None]
    ) -> Listening:
        """Start the gRPC server and the listener for joining hosts, and return the addresses.

        Raises:
            OSError: for one of the services, no address is free.
        """
        endpoints = {"local": self._local_endpoint(meta)}
        background = None
        if self._tls is not None:
            endpoints |= self._tls_endpoints(self._tls, meta)
            background = self._tls.certified.watch
        found = server.start(list(endpoints.values()), on_fault, background)
        by_name = dict(zip(endpoints, found, strict=True))
        if self._tls is not None:
            if self._config.listen_users:
                by_name["users"] = self._listen_for_login_hosts(self._tls.files, meta)
            by_name["joining"] = self._start_joining(meta, by_name, on_fault)
        ports = {
            _PORTS[name]: str(each.port)
            for name, each in by_name.items()
            if isinstance(each, TcpAddress)
        }
        tls = {name: str(each) for name, each in by_name.items() if name != "local"}
        path = self._config.run / ADDRESSES_FILE
        if tls:
            write_whole(path, f"{json.dumps(tls)}\n")
        else:
            path.unlink(missing_ok=True)
        return Listening(str(by_name["local"]), tls, ports)

    def stop_joining(self) -> None:
        """Stop admitting hosts that join the cluster."""
        if self._joining is not None:
            self._joining.stop()

    def _start_joining(
        self,
        meta: Mapping[str, str],
        by_name: Mapping[str, Address],
        on_fault: Callable[[str], None],
    ) -> Address:
        from pliant.protos.identity.certificate_names import Role
        from pliant.server.node_joining.admission import Admission
        from pliant.server.node_joining.node_joining_listener import JoiningListener

        def servers(reached: str, role: Role) -> Sequence[str]:
            address = by_name.get("users" if role is Role.LOGIN_AGENT else "nodes")
            if not isinstance(address, TcpAddress):
                return ()
            host = reached if _is_wildcard(address.host) else address.host
            return (str(TcpAddress(host, address.port)),)

        self._joining = JoiningListener(Admission(self._config.identity, servers))
        candidates = _candidates(self._config.joining_address, meta.get(_PORTS["joining"]))
        addresses = [each for each in candidates if isinstance(each, TcpAddress)]
        return self._joining.start(addresses, on_fault)

    def _listen_for_login_hosts(self, files: TlsFiles, meta: Mapping[str, str]) -> Address:
        from pliant.server.login_hosts.agent_admission import AgentAdmission
        from pliant.server.login_hosts.login_host_listener import LoginHosts

        wanted = parse_address(self._config.listen_users)
        candidates = _candidates(wanted, meta.get(_PORTS["users"]))
        addresses = [each for each in candidates if isinstance(each, TcpAddress)]
        self.login_hosts = LoginHosts(AgentAdmission(files), addresses)
        return self.login_hosts.address

    def _load_tls(self) -> _Tls:
        from pliant.server.authentication.node_admission import NodeAdmission
        from pliant.server.authentication.tls_files import TlsFiles
        from pliant.server.rpc.certified_nodes import CertifiedNodes

        files = TlsFiles(self._config.identity)
        admission = NodeAdmission(files)
        return _Tls(files, admission, CertifiedNodes(files, admission, self._parts.nodelist.lose))

    def _local_endpoint(self, meta: Mapping[str, str]) -> Endpoint:
        admission = self._tls.admission if self._tls else None
        nodes = self._node_service(SecretAuthenticator(self._secret, admission))
        share = _SHARES["local"] if self._tls else 1.0
        addresses = _candidates(self._config.address, meta.get(_PORTS["local"]))
        services = (node_service(nodes), *self._application_services())
        return Endpoint(addresses, services, share=share)

    def _tls_endpoints(self, tls: _Tls, meta: Mapping[str, str]) -> dict[str, Endpoint]:
        nodes_at, applications_at = self._config.tls_addresses
        _warn_of_uncovered({nodes_at.host, applications_at.host}, tls.files)
        nodes = self._node_service(CertificateAuthenticator(tls.admission, tls.certified))

        def on_bound(address: Address) -> None:
            nodes.application_address = _address_for_nodes(address, nodes_at)

        # Applications first: nodes are told their port.
        return {
            "applications": Endpoint(
                _candidates(applications_at, meta.get(_PORTS["applications"])),
                self._application_services(),
                tls.files.credentials(clients_have_certificates=False),
                _SHARES["applications"],
                on_bound,
            ),
            "nodes": Endpoint(
                _candidates(nodes_at, meta.get(_PORTS["nodes"])),
                (node_service(nodes),),
                tls.files.credentials(
                    clients_have_certificates=True, on_handshake=tls.certified.handshakes.begin
                ),
                _SHARES["nodes"],
            ),
        }

    def _node_service(self, authenticator: NodeAuthenticator) -> NodeService:
        parts = self._parts
        nodes = NodeService(
            parts.core_loop,
            parts.connections,
            parts.nodelist,
            parts.remove,
            parts.barriers,
            parts.validator,
            ServerIdentity(
                self._generation, self._instance_id, self._config.beat_interval_s, authenticator
            ),
        )
        nodes.on_registered.append(parts.on_node_registered)
        nodes.shared_folder, nodes.removals = parts.shared_folder, parts.removals
        nodes.on_shim_message = parts.step_resizes.on_answer
        return nodes

    def _application_services(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the services for applications, and for the staged files of their jobs."""
        parts = self._parts
        apps = AppService(
            parts.core_loop,
            parts.connections,
            parts.status,
            parts.tokens,
            parts.clock,
            generation=self._generation,
            rate_limiter=parts.rate_limiter,
        )
        return application_service(apps), staging_service(parts.staging)


def _candidates(address: Address, last_port: str | None) -> list[Address]:
    """Return the addresses on which to try to listen, in this order.

    For port 0 (any free port), the port of the last start is tried first.
    """
    if not isinstance(address, TcpAddress) or address.port or not last_port:
        return [address]
    return [TcpAddress(address.host, int(last_port)), address]


def _address_for_nodes(applications: Address, nodes: TcpAddress) -> str:
    """Return the address of the service for applications in the form that is sent to nodes.

    The host is left out if it is the same as in the address for nodes, because a node may know this
    host by another name. The result is empty if the service listens on a unix-domain socket.
    """
    if not isinstance(applications, TcpAddress):
        return ""
    host = applications.host
    if host == nodes.host or _is_wildcard(host):
        host = ""
    return str(TcpAddress(host, applications.port))


def _is_wildcard(host: str) -> bool:
    return host != "localhost" and ipaddress.ip_address(host).is_unspecified


def _warn_of_uncovered(hosts: set[str], files: TlsFiles) -> None:
    """Log a warning for each host in ``hosts`` that is not in the server's certificate."""
    from pliant.protos.identity.authority import server_addresses

    covered = set(server_addresses(files.current.identity.server[0]))
    for host in sorted(hosts):
        if not _is_wildcard(host) and host not in covered:
            log.warning(
                "listen: %s is not in the server's certificate; nodes accept it by the name "
                "server.pliant, other programs may not; to add it, run "
                "`pliant cluster renew --address %s`",
                host,
                host,
            )

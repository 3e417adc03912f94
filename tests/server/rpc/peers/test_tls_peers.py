"""Who may use the ports for other hosts: strangers, nodes that lie, nodes that were revoked."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from pliant.protos import node_pb2
from pliant.protos.identity import authority, keys
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.certificates import parse_certificates
from pliant.protos.signed_orders.launch_order import VERSION
from pliant.protos.versions import PROTOCOL
from serverkit import Controller, Server
from testkit import wait_until
from tlskit import Credentials, Membership, tls_addresses
from tlskit.peer import TlsPeer, registration

pytestmark = pytest.mark.cluster


@dataclass
class Ports:
    """A server with an identity, and its ports."""

    server: Server
    membership: Membership

    @property
    def nodes(self) -> str:
        return tls_addresses(self.server.run)["nodes"]

    @property
    def applications(self) -> str:
        return tls_addresses(self.server.run)["applications"]

    def peer(self, shown: Credentials | None, roots: bytes = b"") -> TlsPeer:
        return TlsPeer(self.nodes, roots or self.membership.roots, shown)

    def known(self) -> dict[str, str]:
        """Return the states of the nodes that the server knows."""
        with self.server.user() as user:
            return {each["name"]: each["state"] for each in user.do("nodes")["nodes"]}

    def refusal(self, shown: Credentials, first: node_pb2.NodeReport) -> str:
        """Return why the server refuses a registration."""
        with closing(self.peer(shown).open(first)) as peer:
            return str(peer.find("refused").reason)


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    server = Server(base, listen="127.0.0.1:0", kill_grace_s=0.2)
    membership = Membership(server.state)
    server.start()
    yield Ports(server, membership)
    server.stop(signal.SIGKILL)
    shutil.rmtree(base, ignore_errors=True)


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1])
def test_a_node_that_refuses_the_servers_orders_is_refused(ports: Ports, version: int) -> None:
    name = f"n2{version}"
    shown = ports.membership.admit(name, 2)
    first = registration(name, runs_as_user=True, order_version=version, protocol=PROTOCOL)
    reason = ports.refusal(shown, first)
    assert f"signs version {VERSION}" in reason
    assert (f"version {version}" if version else f"protocol {PROTOCOL}") in reason
    assert name not in ports.known()
    # Its jobs would be lost.
    first.register.worlds.add(world="x", job=1, run=1, live_processors=[0])
    with closing(ports.peer(shown).open(first)) as peer:
        peer.find("welcome")


# ---------------------------------------------------------------- strangers


@pytest.mark.case(57)
@pytest.mark.parametrize(
    "kind", ["no certificate", "another authority", "expired", "the server's role"]
)
def test_tls_refuses_strangers_before_any_message(ports: Ports, kind: str, tmp_path: Path) -> None:
    shown: Credentials | None = None
    if kind == "another authority":
        shown = Membership(tmp_path / "state").admit("n1")
    elif kind == "expired":
        shown = ports.membership.issue("n1", lifetime_s=60.0, age_s=3600.0)
    elif kind == "the server's role":
        shown = ports.membership.issue("server", Role.SERVER)
    with closing(ports.peer(shown).open(registration("n1"))) as peer:
        assert peer.next() is None
        assert peer.error is not None
        assert peer.error.code is grpc.StatusCode.UNAVAILABLE
    assert "n1" not in ports.known()


@pytest.mark.case(57)
def test_a_client_without_tls_gets_no_answer(ports: Ports) -> None:
    controller = Controller(ports.nodes, "n1", 2, secret="anything")
    assert controller.ended.wait(60)
    assert isinstance(controller.error, grpc.Call)
    assert controller.error.code() is grpc.StatusCode.UNAVAILABLE
    controller.close()
    assert "n1" not in ports.known()


@pytest.mark.case(57)
@pytest.mark.parametrize("port", ["nodes", "applications"])
def test_tls_1_2_is_refused(ports: Ports, port: str, tmp_path: Path) -> None:
    shown = ports.membership.admit("n12")
    (tmp_path / "key").write_bytes(shown.key)
    (tmp_path / "certificates").write_bytes(shown.certificates)
    for version, accepted in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)):
        context = ssl.create_default_context(cadata=ports.membership.roots.decode())
        context.minimum_version = context.maximum_version = version
        context.load_cert_chain(tmp_path / "certificates", tmp_path / "key")
        context.set_alpn_protocols(["h2"])
        host, _, number = getattr(ports, port).rpartition(":")
        with socket.create_connection((host, int(number)), timeout=30) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="server.pliant") as secure:
                    assert bool(secure.recv(9)) == accepted
            except OSError:
                assert not accepted


def test_each_port_has_its_service_only(ports: Ports) -> None:
    shown = ports.membership.admit("n13")
    with closing(ports.peer(shown)) as peer:
        assert peer.open_application().code is grpc.StatusCode.UNIMPLEMENTED
    with closing(TlsPeer(ports.applications, ports.membership.roots, shown)) as peer:
        assert peer.open(registration("n13")).next() is None
        assert peer.error is not None
        assert peer.error.code is grpc.StatusCode.UNIMPLEMENTED


def test_an_application_without_a_token_is_refused(ports: Ports) -> None:
    with closing(TlsPeer(ports.applications, ports.membership.roots, None)) as peer:
        assert peer.open_application().code is grpc.StatusCode.UNAUTHENTICATED


# ---------------------------------------------------------------- members that lie


@pytest.mark.case(57)
def test_a_node_has_the_name_in_its_certificate_only(ports: Ports) -> None:
    shown = ports.membership.admit("n2")
    ports.membership.admit("n3")
    reason = ports.refusal(shown, registration("n3"))
    assert "'n3'" in reason
    assert "only name" in reason
    assert ports.server.log().count(reason) == 1
    assert not {"n2", "n3"} & set(ports.known())


@pytest.mark.case(57)
def test_a_login_agent_is_no_node(ports: Ports) -> None:
    shown = ports.membership.issue("agent", Role.LOGIN_AGENT)
    assert "is not a node" in ports.refusal(shown, registration("agent"))


def test_a_certificate_alone_does_not_admit_a_node(ports: Ports) -> None:
    reason = ports.refusal(ports.membership.issue("n4"), registration("n4"))
    assert "not admitted" in reason


def test_the_certificate_before_a_new_join_is_refused(ports: Ports) -> None:
    old = ports.membership.admit("n5")
    ports.membership.nodes.revoke("n5", now=time.time())
    new = ports.membership.admit("n5")
    assert "was replaced" in ports.refusal(old, registration("n5"))
    with closing(ports.peer(new).open(registration("n5"))) as peer:
        peer.find("welcome")


def test_a_node_offers_no_more_slots_than_allowed(ports: Ports) -> None:
    shown = ports.membership.admit("n6", 2)
    assert "--slots 2" in ports.refusal(shown, registration("n6", 3))
    with closing(ports.peer(shown).open(registration("n6", 2))) as peer:
        peer.find("welcome")


def test_the_secret_does_not_open_the_name_of_a_node_that_has_joined(ports: Ports) -> None:
    ports.membership.admit("n7")
    controller = ports.server.controller("n7")
    assert "only with its certificate" in controller.expect("refused").reason
    controller.close()


def test_a_damaged_list_of_nodes_admits_nobody_and_ends_nothing(ports: Ports) -> None:
    shown = ports.membership.admit("n8")
    path = ports.membership.directory / "admitted-nodes.json"
    with closing(ports.peer(shown).open(registration("n8"))) as connected:
        connected.find("welcome")
        good = path.read_bytes()
        path.write_bytes(b"{")
        try:
            with closing(ports.peer(shown).open(registration("n8"))) as peer:
                assert peer.next() is None
                assert peer.error is not None
                assert peer.error.code is grpc.StatusCode.UNAVAILABLE  # it tries again
            wait_until(lambda: "list of admitted nodes cannot be read" in ports.server.log())
        finally:
            path.write_bytes(good)
        assert ports.known()["n8"] == "UP"


# ---------------------------------------------------------------- revoked


@pytest.mark.case(57)
def test_a_revoked_node_that_keeps_talking_is_cut_off(ports: Ports) -> None:
    shown = ports.membership.admit("n9", 2)
    peer = ports.peer(shown).open(registration("n9"))
    peer.find("welcome")
    with ports.server.user() as user:
        for other in ports.known().keys() - {"n9"}:
            user.do("drain", node=other)
        job = user.submit(sizes="2")
        wait_until(lambda: user.job(job)["state"] == "STARTING")
        start = peer.find("start_world")
        ready = node_pb2.WorldReady(world=start.world, job=start.job, run=start.run)
        peer.say(node_pb2.NodeReport(world_ready=ready))
        wait_until(lambda: user.job(job)["state"] == "RUNNING")
        ports.membership.nodes.revoke("n9", now=time.time())
        assert "revoked" in peer.find("refused").reason
        for _ in range(3):
            peer.say(node_pb2.NodeReport(beat=node_pb2.Beat(sequence=1)))
        assert peer.next() is None
        wait_until(lambda: ports.known()["n9"] == "LOST")
        assert user.do("wait", id=job)["job"]["state"] == "NODE_FAIL"
    peer.close()
    assert "was revoked" in ports.refusal(shown, registration("n9"))
    assert ports.known()["n9"] == "LOST"
    assert "Traceback" not in ports.server.log()


# ---------------------------------------------------------------- renewal


def renew(request: bytes, peer: TlsPeer) -> node_pb2.Certificates:
    """Ask for a new certificate, and return the answer."""
    message = node_pb2.RenewCertificate(signing_request=request)
    peer.say(node_pb2.NodeReport(renew_certificate=message))
    while True:
        answer: node_pb2.Certificates = peer.find("certificates")
        if answer.certificate or answer.refusal:
            return answer


def test_a_certificate_is_renewed_on_the_stream_of_its_node(ports: Ports) -> None:
    shown = ports.membership.admit("n10", lifetime_s=30.0)
    request = authority.create_request(keys.create_certificate_key())
    with closing(ports.peer(shown).open(registration("n10"))) as peer:
        peer.find("welcome")
        answer = renew(request, peer)
        assert answer.roots == ports.membership.roots
        chain = parse_certificates(answer.certificate)
        assert chain[0].not_valid_after_utc.timestamp() > time.time() + 29 * authority.DAY_S
    assert len(ports.membership.nodes.read()["n10"].serials) == 2  # until it uses the new one


@pytest.mark.parametrize("kind", ["too early", "nonsense"])
def test_a_wrong_request_is_refused(ports: Ports, kind: str) -> None:
    name = f"n11-{kind[:3]}"
    shown = ports.membership.admit(name, lifetime_s=None if kind == "too early" else 30.0)
    request = authority.create_request(keys.create_certificate_key())
    if kind == "nonsense":
        request = b"-----BEGIN NONSENSE-----"
    with closing(ports.peer(shown).open(registration(name))) as peer:
        peer.find("welcome")
        assert not renew(request, peer).certificate
        assert ports.known()[name] == "UP"
    assert len(ports.membership.nodes.read()[name].serials) == 1

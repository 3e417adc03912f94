"""A host joins over a real connection, and every reason why it may not."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.x509 import Certificate

from pliant.client import node_joining as client
from pliant.client.node_joining import join
from pliant.core.support.base_error import PliantError
from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.daemons.private_paths import UntrustedPathError
from pliant.protos.identity import authority, keys
from pliant.protos.identity.admitted_nodes import AGENTS_FILE, AdmittedNodes
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.certificates import (
    ends_at,
    fingerprint,
    format_certificates,
    verify_chain,
)
from pliant.protos.identity.cluster_files import create_identity, load_identity
from pliant.protos.identity.identity_errors import (
    CertificateTimeError,
    JoinError,
    StoredIdentityError,
)
from pliant.protos.identity.node_files import load_node_identity
from pliant.protos.node_joining.join_token import JoinToken
from pliant.protos.node_joining.messages import Greeting
from pliant.protos.node_joining.token_store import MAX_LIFETIME_S
from testkit import wait_until
from tlskit.node_joining import JoiningServer

from .conftest import StartServer


def test_a_host_becomes_a_node(joining: JoiningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = joining.join(joining.token())
    assert load_node_identity(joining.place("host")) == made
    assert made.identity.uri == "pliant://blue/node/n7"
    assert (made.servers, made.slots) == (("127.0.0.1:7781",), 16)
    cluster = load_identity(joining.directory)
    assert verify_chain(made.chain, cluster.roots, now=time.time()) == made.identity
    assert keys.parse_order_public_key(made.order_public_key).public_bytes_raw() == (
        cluster.order_public_key
    )
    node = joining.nodes.read()["n7"]
    assert node.allows(made.chain[0])
    assert node.slots == 16
    assert joining.tokens.pending(now=time.time()) == []
    assert [each.name for each in joining.place("host").parent.iterdir()] == ["node-identity"]
    assert "node n7 joined, from 127.0.0.1" in caplog.text


def test_the_address_can_be_another_one(joining: JoiningServer) -> None:
    token = joining.token(max_slots=None, address="front.invalid:7")
    with pytest.raises(JoinError, match=r"cannot be reached at front\.invalid:7.*--address"):
        joining.join(token)
    assert joining.join(token, address=str(joining.address)).slots is None


def test_nobody_listens(joining: JoiningServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(JoinError, match=f"cannot be reached at 127.0.0.1:{port}"):
        joining.join(joining.token(address=f"127.0.0.1:{port}"))
    for address in ("front", "unix:/run/x", "front:0"):
        with pytest.raises(JoinError, match="HOST:PORT"):
            joining.join(joining.token(), address=address)


@pytest.mark.case(67)
def test_another_cluster_gets_no_secret(joining: JoiningServer, start_server: StartServer) -> None:
    other = start_server("other")
    token = joining.token()
    with pytest.raises(JoinError, match=r"another cluster than the token.*Nothing secret"):
        joining.join(token, address=str(other.address))
    assert joining.join(token).identity.name == "n7"
    assert other.nodes.read() == {}


@pytest.mark.case(67)
@pytest.mark.parametrize("claims", ["its root", "its chain"])
def test_a_man_in_the_middle_gets_no_secret(
    joining: JoiningServer, tmp_path: Path, claims: str
) -> None:
    """A server with another CA sends the public roots, and even the chain, of the true one."""
    create_identity(tmp_path / "other", "blue", [], now=time.time())
    true = load_identity(joining.directory)
    shown = true if claims == "its chain" else load_identity(tmp_path / "other")
    greeting = Greeting("blue", time.time(), _pem(true.roots), _pem(shown.server)).encode()
    with _Middle(tmp_path / "other", greeting) as middle:
        token = joining.token()
        with pytest.raises(JoinError, match=r"did not prove.*Nothing secret was sent"):
            joining.join(token, address=middle.address)
        middle.thread.join(30)
    assert middle.got == b""
    assert joining.join(token).identity.name == "n7"


@pytest.mark.case(67)
def test_a_node_cannot_play_the_server(joining: JoiningServer, tmp_path: Path) -> None:
    """The stolen key of a node is good for no listener, though its root is the right one."""
    node = joining.join(joining.token(), "n7")
    (tmp_path / "stolen").mkdir()
    (tmp_path / "stolen" / "server.pem").write_bytes(node.certificates)
    (tmp_path / "stolen" / "server.key").write_bytes(node.key)
    greeting = Greeting("blue", time.time(), node.roots, node.certificates).encode()
    with _Middle(tmp_path / "stolen", greeting) as middle:
        with pytest.raises(JoinError, match=r"not that of a server.*Nothing secret"):
            joining.join(joining.token("n8"), "n8", address=middle.address)
        middle.thread.join(30)
    assert middle.got == b""


@pytest.mark.case(67)
def test_a_token_is_good_once(joining: JoiningServer, caplog: pytest.LogCaptureFixture) -> None:
    token = joining.token()
    joining.join(token)
    with pytest.raises(JoinError, match="token of node n7 was used"):
        joining.join(token, "thief")
    assert not joining.place("thief").exists()
    assert caplog.text.count("was used") == 1, "each refusal is logged once"
    assert len(joining.nodes.read()["n7"].certificates) == 1


@pytest.mark.case(67)
def test_unknown_and_expired_tokens(joining: JoiningServer) -> None:
    token = joining.token(now=time.time() - 700)
    with pytest.raises(JoinError, match=r"expired 1.. s ago"):
        joining.join(token)
    joining.token()  # replaces it
    with pytest.raises(JoinError, match="unknown"):
        joining.join(token)
    assert joining.nodes.read() == {}


@pytest.mark.case(67)
def test_of_two_hosts_with_one_token_one_joins(joining: JoiningServer) -> None:
    token = joining.token()

    def attempt(host: str) -> str:
        try:
            return str(joining.join(token, host).chain[0].serial_number)
        except JoinError:
            return ""

    with ThreadPoolExecutor(6) as threads:
        joined = [each for each in threads.map(attempt, map(str, range(6))) if each]
    (node,) = joining.nodes.read().values()
    assert [f"{int(each):x}" for each in joined] == list(node.serials)


def test_many_hosts_at_once(joining: JoiningServer) -> None:
    tokens = {f"n{number}": joining.token(f"n{number}") for number in range(40)}
    with ThreadPoolExecutor(12) as threads:
        made = list(threads.map(lambda name: joining.join(tokens[name], name), tokens))
    assert [each.identity.name for each in made] == list(tokens)
    assert set(joining.nodes.read()) == set(tokens)


@pytest.mark.case(67)
def test_a_lost_answer_is_asked_for_again(
    joining: JoiningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = joining.token()

    def lose(*_: object) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as patch:
        patch.setattr(client, "decode_answer", lose)
        with pytest.raises(JoinError, match="same token"):
            joining.join(token)
    assert not joining.place("host").exists()
    assert "n7" in joining.nodes.read()
    made = joining.join(token)
    (node,) = joining.nodes.read().values()
    assert node.allows(made.chain[0])
    assert len(node.serials) == 1
    with pytest.raises(JoinError, match="was used"):
        joining.join(token, "thief")


@pytest.mark.case(67)
def test_a_revoked_node_cannot_use_its_token_again(joining: JoiningServer) -> None:
    token = joining.token()
    made = joining.join(token)
    joining.nodes.revoke("n7", now=time.time())
    os.rename(joining.place("host"), joining.hosts / "copy")
    draft = joining.place("host").with_name(".node-identity.joining")
    draft.mkdir(mode=0o700)
    write_private(
        draft / "draft.json",
        json.dumps({"token": token.id, "key": made.key.decode()}).encode(),
    )
    with pytest.raises(JoinError, match="was revoked"):
        joining.join(token)
    assert joining.nodes.read()["n7"].revoked_at is not None


def test_a_host_that_has_joined_says_what_to_do(joining: JoiningServer) -> None:
    joining.join(joining.token())
    with pytest.raises(StoredIdentityError, match="pliant node leave"):
        joining.join(joining.token("n8"))
    assert [each.node for each in joining.tokens.pending(now=time.time())] == ["n8"]


def test_a_directory_that_others_can_change(joining: JoiningServer) -> None:
    joining.place("host").parent.mkdir(parents=True)
    joining.place("host").parent.chmod(0o777)
    with pytest.raises(UntrustedPathError, match="chmod"):
        joining.join(joining.token())


@pytest.mark.parametrize(
    ("skew", "text"), [(90, "90 s ahead of"), (-90, "behind"), (400 * 86400, "ahead of that of")]
)
def test_clocks_that_differ_are_named(joining: JoiningServer, skew: float, text: str) -> None:
    token = joining.token()
    with pytest.raises(CertificateTimeError, match=text):
        joining.join(token, clock=lambda: time.time() + skew)
    assert joining.join(token, clock=lambda: time.time() + 30).identity.name == "n7"


def test_a_certificate_ends_with_that_of_its_issuer(start_server: StartServer) -> None:
    late = time.time() + 350 * authority.DAY_S
    joining = start_server(clock=lambda: late)
    made = joining.join(joining.token(now=late), clock=lambda: late)
    assert ends_at(made.chain[0]) == ends_at(made.chain[1]) < late + 16 * authority.DAY_S


def test_an_issuer_that_has_expired_issues_nothing(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = time.time() + 400 * authority.DAY_S
    joining = start_server(clock=lambda: late)
    token = joining.token(now=late)
    with pytest.raises(CertificateTimeError, match="renew the certificate"):
        joining.join(token, clock=lambda: late)
    monkeypatch.setattr(client, "_check_server", lambda *_: None)
    with pytest.raises(JoinError, match="the certificate of the issuing authority was valid until"):
        joining.join(token, clock=lambda: late)
    assert [each.node for each in joining.tokens.pending(now=late)] == ["n7"]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (0, ""),
        (200, "the server ends in 165 days: run `pliant cluster renew`"),
        (400, "the issuing authority has ended"),
        (6 * 365, "the root ends in 1460 days: run `pliant cluster roll-over start`"),
    ],
)
def test_the_log_asks_to_renew_certificates(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, days: int, expected: str
) -> None:
    later = time.time() + days * authority.DAY_S
    start_server(clock=lambda: later)
    wait_until(lambda: expected in caplog.text)
    assert bool(expected) == ("run `" in caplog.text)


def test_what_the_server_cannot_write_uses_no_token_up(
    joining: JoiningServer, caplog: pytest.LogCaptureFixture
) -> None:
    token = joining.token()
    path = joining.directory / "admitted-nodes.json"
    path.write_text("damaged")
    path.chmod(0o600)
    with pytest.raises(JoinError, match="refuses"):
        joining.join(token)
    assert "admitted-nodes.json is damaged" in caplog.text
    assert path.read_text() == "damaged"
    path.unlink()
    assert joining.join(token).identity.name == "n7"


def test_renewed_certificates_are_used_without_a_restart(joining: JoiningServer) -> None:
    old = joining.token()
    shutil.rmtree(joining.directory)
    create_identity(joining.directory, "green", [], now=time.time())
    with pytest.raises(JoinError, match="another cluster"):
        joining.join(old)
    assert joining.join(joining.token()).identity.cluster == "green"


def test_a_port_that_is_not_for_joining(joining: JoiningServer) -> None:
    def serve(listening: socket.socket, reply: bytes) -> None:
        for _ in range(client.ATTEMPTS):
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)
            if reply:
                return

    for reply, text in [(b"220 mail.example ESMTP\r\n", "not the port"), (b"", "closed")]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=serve, args=(listening, reply))
            thread.start()
            with pytest.raises(JoinError, match=text):
                joining.join(joining.token(), address=f"127.0.0.1:{listening.getsockname()[1]}")
            thread.join(30)


def test_the_longest_lifetime() -> None:
    assert MAX_LIFETIME_S == 7 * 86400


def test_a_token_of_one_root_is_good_while_there_are_two(joining: JoiningServer) -> None:
    (root,) = load_identity(joining.directory).roots
    stranger = authority.create_root("blue", now=time.time()).certificate
    token = joining.token(fingerprints=[fingerprint(stranger), fingerprint(root)])
    assert joining.join(token).identity.name == "n7"
    wrong = JoinToken(token.id, token.secret, (fingerprint(stranger),), token.address)
    with pytest.raises(PliantError, match="another cluster"):
        join(wrong, joining.place("other"))


# ---------------------------------------------------------------- a server of the test


def _pem(certificates: Sequence[Certificate]) -> bytes:
    return format_certificates(certificates).encode()


class _Middle:
    """A TLS server that says one line and then listens."""

    def __init__(self, directory: Path, line: bytes) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(directory / "server.pem", directory / "server.key")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._line = line
        self.got = b""
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Middle:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _run(self) -> None:
        connection, _ = self._listening.accept()
        with self._context.wrap_socket(connection, server_side=True) as stream:
            stream.sendall(self._line)
            try:
                self.got = stream.recv(4096)
            except OSError:
                pass


def test_a_login_agent_joins_with_a_token(joining: JoiningServer) -> None:
    token = joining.token("login1", role=Role.LOGIN_AGENT, max_slots=None)
    joined = joining.join(token)
    assert (joined.identity.role, joined.identity.name) == (Role.LOGIN_AGENT, "login1")
    assert joined.servers == ("127.0.0.1:7784",)
    place = joining.place("host")
    assert load_node_identity(place, role=Role.LOGIN_AGENT) == joined
    with pytest.raises(StoredIdentityError, match="not of a node"):
        load_node_identity(place)  # a controller does not start with it
    agents = AdmittedNodes(joining.directory / AGENTS_FILE, role=Role.LOGIN_AGENT).read()
    assert agents["login1"].allows(joined.chain[0])
    assert joining.nodes.read() == {}


def test_a_node_and_a_login_agent_may_have_the_same_name(joining: JoiningServer) -> None:
    node, agent = joining.token("x"), joining.token("x", role=Role.LOGIN_AGENT)
    assert joining.join(node, "one").identity.role is Role.NODE
    assert joining.join(agent, "two").identity.role is Role.LOGIN_AGENT

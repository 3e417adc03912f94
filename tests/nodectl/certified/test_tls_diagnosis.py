"""The sentence in the log of a controller that cannot connect."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from pliant.nodectl.certified.tls_diagnosis import diagnose
from pliant.protos.identity import authority, keys
from pliant.protos.identity.authority import DAY_S
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import format_certificates
from tlskit import Credentials, Membership


@contextmanager
def listening(shown: Credentials | None, roots: bytes) -> Iterator[str]:
    """Listen as a server with a certificate, or without TLS, and yield the address."""
    server = grpc.server(ThreadPoolExecutor(1))
    if shown is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = (shown.key, shown.certificates)
        credentials = grpc.ssl_server_credentials([pair], roots, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture(scope="module")
def membership(tmp_path_factory: pytest.TempPathFactory) -> Membership:
    return Membership(tmp_path_factory.mktemp("cluster") / "state")


@pytest.fixture(scope="module")
def directory(membership: Membership, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return membership.join(tmp_path_factory.mktemp("node") / "state", "n1", ["127.0.0.1:1"])


def say(address: str, directory: Path) -> str:
    return diagnose(address, directory, time.time())


def test_nothing_is_wrong(membership: Membership, directory: Path) -> None:
    server = membership.issue("server", Role.SERVER)
    with listening(server, membership.roots) as address:
        assert say(address, directory) == ""


def test_nobody_listens(directory: Path) -> None:
    assert say("127.0.0.1:1", directory) == "Connection refused"


def test_it_is_a_server_of_another_cluster(
    membership: Membership, directory: Path, tmp_path: Path
) -> None:
    other = Membership(tmp_path / "state")
    with listening(other.issue("server", Role.SERVER), membership.roots) as address:
        assert "another authority" in say(address, directory)


def test_a_node_that_plays_the_server(membership: Membership, directory: Path) -> None:
    with listening(membership.issue("n2"), membership.roots) as address:
        assert "certificate is not valid" in say(address, directory)


def test_it_does_not_use_tls(membership: Membership, directory: Path) -> None:
    with listening(None, membership.roots) as address:
        assert "TLS" in say(address, directory)


def test_the_server_trusts_another_authority(
    membership: Membership, directory: Path, tmp_path: Path
) -> None:
    other = Membership(tmp_path / "state")
    with listening(membership.issue("server", Role.SERVER), other.roots) as address:
        assert "does not accept the certificate of this node" in say(address, directory)


@pytest.mark.parametrize(
    ("from_now_s", "words"), [(3600.0, r"35\d\d s behind"), (-3600.0, "ahead of that")]
)
def test_a_clock_is_wrong(tmp_path: Path, from_now_s: float, words: str) -> None:
    """The certificate of the server starts in an hour less a minute, or ended an hour ago."""
    began = time.time() - 400 * DAY_S
    root = authority.create_root("blue", now=began)
    issuer = authority.create_issuer(root, now=time.time() - DAY_S)
    key = keys.create_certificate_key()
    start, lifetime_s = (time.time() + from_now_s, DAY_S)
    if from_now_s < 0:
        start, lifetime_s = time.time() - 7200.0, 3600.0
    chain = authority.issue(
        issuer,
        authority.create_request(key),
        Identity("blue", Role.SERVER, "server"),
        now=start,
        lifetime_s=lifetime_s,
    )
    server = Credentials(keys.format_private_key(key).encode(), format_certificates(chain).encode())
    directory = Membership(tmp_path / "state").join(tmp_path / "node", "n1", ["127.0.0.1:1"])
    roots = format_certificates([root.certificate]).encode()
    (directory / "roots.pem").write_bytes(roots)
    with listening(server, roots) as address:
        found = say(address, directory)
        assert re.search(words, found)  # some of the hour may have passed
        assert "NTP" in found

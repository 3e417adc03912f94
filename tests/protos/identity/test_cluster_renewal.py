"""Certificates of a cluster are renewed, and its root replaced, without nodes losing the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.identity import authority, stored_files
from pliant.protos.identity.admitted_nodes import FILE, AdmittedNodes, serial_of
from pliant.protos.identity.authority import DAY_S, server_addresses
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.certificates import ends_at, fingerprint, verify_chain
from pliant.protos.identity.cluster_files import (
    ClusterIdentity,
    create_identity,
    load_identity,
    load_issuer,
    load_server_credentials,
)
from pliant.protos.identity.cluster_renewal import (
    finish_roll_over,
    needing_old_root,
    renew,
    start_roll_over,
)
from pliant.protos.identity.identity_errors import (
    CertificateError,
    CertificateTimeError,
    IdentityNameError,
    StoredIdentityError,
)

from .conftest import NOW, Member, make_member

LATER = NOW + 200 * DAY_S


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    create_identity(tmp_path / "identity", "blue", ["front"], now=NOW)
    return tmp_path / "identity"


@pytest.fixture
def nodes(directory: Path) -> AdmittedNodes:
    return AdmittedNodes(directory / FILE)


def join(directory: Path, nodes: AdmittedNodes, name: str = "n7", now: float = NOW) -> Member:
    node = make_member(load_issuer(directory), Role.NODE, name, now=now)
    nodes.admit(name, 16, node.chain[0], now=now)
    return node


def test_renewed_certificates_last_longer_and_nodes_keep_theirs(
    directory: Path, nodes: AdmittedNodes
) -> None:
    before = load_identity(directory)
    node = join(directory, nodes, now=LATER)
    after = renew(directory, now=LATER, addresses=["10.0.0.1", "front"])
    assert after == load_identity(directory)
    assert after.roots == before.roots
    assert ends_at(after.issuer) == LATER + 365 * DAY_S
    assert ends_at(after.server[0]) == LATER + 365 * DAY_S
    assert server_addresses(after.server[0]) == ("server.pliant", "front", "10.0.0.1")
    assert after.server[0].public_key() != before.server[0].public_key()
    assert after.order_public_key == before.order_public_key
    late = LATER + 1
    assert verify_chain(node.chain, after.roots, now=late).name == "n7"
    verify_chain(after.server, before.roots, now=late)
    assert load_server_credentials(directory).certificates.count(b"BEGIN") == 2


def test_the_key_of_the_root_may_be_elsewhere(directory: Path, tmp_path: Path) -> None:
    (directory / "root.key").rename(tmp_path / "offline.key")
    with pytest.raises(StoredIdentityError, match="offline: name its file with --root-key"):
        renew(directory, now=LATER)
    after = renew(directory, now=LATER, root_key=tmp_path / "offline.key")
    assert not (directory / "root.key").exists()
    assert ends_at(after.issuer) == LATER + 365 * DAY_S
    create_identity(tmp_path / "other", "blue", [], now=NOW)
    with pytest.raises(StoredIdentityError, match="not the key of the root of this cluster"):
        renew(directory, now=LATER, root_key=tmp_path / "other" / "root.key")
    with pytest.raises(StoredIdentityError, match="no key of a root"):
        renew(directory, now=LATER, root_key=directory / "roots.pem")
    assert load_identity(directory) == after


def test_the_server_alone_needs_no_root_key(directory: Path) -> None:
    (directory / "root.key").unlink()
    before = load_identity(directory)
    after = renew(directory, now=NOW + 30 * DAY_S, addresses=["back"], server_only=True)
    assert after.issuer == before.issuer
    assert "back" in server_addresses(after.server[0])
    with pytest.raises(CertificateTimeError):
        renew(directory, now=NOW + 400 * DAY_S, server_only=True)
    with pytest.raises(IdentityNameError, match="front:1"):
        renew(directory, now=NOW, addresses=["front:1"], server_only=True)
    assert load_identity(directory) == after


def test_addresses_of_the_server_are_removed_and_replaced(directory: Path) -> None:
    renew(directory, now=LATER, addresses=["10.0.0.1", "back"])
    after = renew(directory, now=LATER, addresses=["10.0.0.2"], removed=["front", "10.0.0.1"])
    assert server_addresses(after.server[0]) == ("server.pliant", "back", "10.0.0.2")
    for missing in ("front", "server.pliant"):
        with pytest.raises(CertificateError, match=r"it has back, 10\.0\.0\.2"):
            renew(directory, now=LATER, removed=[missing])
    assert load_identity(directory) == after
    only = renew(directory, now=LATER, addresses=["front"], replaces_addresses=True)
    assert server_addresses(only.server[0]) == ("server.pliant", "front")


def test_a_roll_over_keeps_the_addresses_of_the_server(
    directory: Path, nodes: AdmittedNodes
) -> None:
    renew(directory, now=NOW, addresses=["10.0.0.1"])
    start_roll_over(directory, now=NOW)
    after = finish_roll_over(directory, nodes.read(), now=NOW)
    assert server_addresses(after.server[0]) == ("server.pliant", "front", "10.0.0.1")


def test_a_roll_over_in_the_order_of_its_steps(directory: Path, nodes: AdmittedNodes) -> None:
    before, node = load_identity(directory), join(directory, nodes)
    started = start_roll_over(directory, now=NOW)
    assert started == load_identity(directory)
    assert started.roots[0] == before.roots[0]
    assert len(started.roots) == 2
    # A node with the old bundle goes on, and so does the server's certificate.
    assert started.server == before.server
    verify_chain(started.server, before.roots, now=NOW)
    verify_chain(node.chain, started.roots, now=NOW)
    for step in (start_roll_over, renew):
        with pytest.raises(CertificateError, match="roll-over finish"):
            step(directory, now=NOW)
    with pytest.raises(CertificateError, match="under the old root: n7"):
        finish_roll_over(directory, nodes.read(), now=NOW)
    # The node renews; the answer may have been lost until it uses the new certificate.
    renewed = make_member(load_issuer(directory), Role.NODE, "n7", now=NOW)
    nodes.add_certificate("n7", renewed.chain[0], replaces=serial_of(node.chain[0]), now=NOW)
    assert needing_old_root(started, nodes.read(), now=NOW) == ["n7"]
    nodes.confirm("n7", serial_of(renewed.chain[0]))
    join(directory, nodes, "n8")
    finished = finish_roll_over(directory, nodes.read(), now=NOW)
    assert finished == load_identity(directory)
    assert list(map(fingerprint, finished.roots)) == [fingerprint(started.roots[1])]
    verify_chain(finished.server, finished.roots, now=NOW)
    verify_chain(finished.server, started.roots, now=NOW)  # nodes still have the bundle of two
    verify_chain(renewed.chain, finished.roots, now=NOW)
    assert server_addresses(finished.server[0]) == ("server.pliant", "front")
    with pytest.raises(CertificateError):
        verify_chain(node.chain, finished.roots, now=NOW)
    assert finished.has_root_key
    assert not (directory / "old-root.key").exists()
    with pytest.raises(CertificateError, match="roll-over start"):
        finish_roll_over(directory, nodes.read(), now=NOW)
    assert renew(directory, now=NOW).roots == finished.roots


def test_a_roll_over_needs_no_key_of_the_old_root(directory: Path, nodes: AdmittedNodes) -> None:
    (directory / "root.key").unlink()
    start_roll_over(directory, now=NOW)
    finished = finish_roll_over(directory, nodes.read(), now=NOW)
    assert finished.has_root_key
    assert renew(directory, now=LATER).roots == finished.roots


def test_revoked_and_expired_nodes_do_not_delay_a_roll_over(
    directory: Path, nodes: AdmittedNodes
) -> None:
    join(directory, nodes, "revoked")
    join(directory, nodes, "expired")
    nodes.revoke("revoked", now=NOW)
    start_roll_over(directory, now=NOW)
    with pytest.raises(CertificateError, match=r"root: expired\."):
        finish_roll_over(directory, nodes.read(), now=NOW)
    finish_roll_over(directory, nodes.read(), now=NOW + 31 * DAY_S)


def test_a_roll_over_does_not_start_shortly_before_the_server_expires(directory: Path) -> None:
    with pytest.raises(CertificateError, match="first run `pliant cluster renew`"):
        start_roll_over(directory, now=NOW + 320 * DAY_S)
    with pytest.raises(CertificateTimeError):
        start_roll_over(directory, now=NOW + 370 * DAY_S)


def read_anyway(directory: Path) -> ClusterIdentity:
    load_server_credentials(directory)
    load_issuer(directory)
    return load_identity(directory)


@pytest.mark.case(68)
@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("change", [renew, start_roll_over], ids=["renew", "start"])
def test_a_crash_leaves_the_old_or_the_new_identity(
    directory: Path,
    change: Callable[..., ClusterIdentity],
    step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, before = [], load_identity(directory)

    def crash(path: Path, content: bytes) -> None:
        calls.append(path)
        if len(calls) > step:
            raise KeyboardInterrupt
        write_private(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(stored_files, "write_private", crash)
        try:
            change(directory, now=NOW)
        except KeyboardInterrupt:
            pass
    after = read_anyway(directory)
    assert (after == before) == (step == 0)
    # The next change completes the interrupted one.
    if len(after.roots) == 2:
        finish_roll_over(directory, {}, now=NOW)
    else:
        renew(directory, now=NOW)
    assert read_anyway(directory).roots == after.roots[-1:]
    assert not (directory / "changes.json").exists()


def test_two_changes_at_once_do_not_mix(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = authority.create_root

    def renewed_meanwhile(cluster: str, *, now: float) -> object:
        renew(directory, now=NOW)
        return create(cluster, now=now)

    monkeypatch.setattr(authority, "create_root", renewed_meanwhile)
    with pytest.raises(StoredIdentityError, match="at the same time"):
        start_roll_over(directory, now=NOW)
    assert len(read_anyway(directory).roots) == 1

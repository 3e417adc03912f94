"""A root is replaced while members of the old one are connected."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pliant.protos.identity import authority
from pliant.protos.identity.authority import Authority
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.certificates import fingerprint, format_certificates, verify_chain
from pliant.protos.identity.identity_errors import CertificateError
from pliant.protos.identity.trust_bundle import add_root, drop_root, parse_bundle

from .conftest import NOW, Member

Make = Callable[..., Member]


@pytest.fixture
def new_root() -> Authority:
    return authority.create_root("blue", now=NOW)


def test_a_roll_over(root: Authority, new_root: Authority, member: Make) -> None:
    old = fingerprint(root.certificate)
    chains = [member(role).chain for role in Role]
    both = add_root((root.certificate,), new_root.certificate)
    assert parse_bundle(format_certificates(both).encode()) == both
    with pytest.raises(CertificateError, match=r"pliant://blue/server/n7 still needs the root"):
        drop_root(both, old, in_use=chains, now=NOW)

    new = authority.create_issuer(new_root, now=NOW)
    renewed = [authority.reissue(new, chain[0], now=NOW) for chain in chains]
    for chain in [*chains, *renewed]:
        verify_chain(chain, both, now=NOW)
    left = drop_root(both, old, in_use=renewed, now=NOW)
    assert left == (new_root.certificate,)
    for chain in chains:
        with pytest.raises(CertificateError):
            verify_chain(chain, left, now=NOW)


def test_adding_a_root_twice_changes_nothing(root: Authority, new_root: Authority) -> None:
    both = add_root((root.certificate,), new_root.certificate)
    assert add_root(both, new_root.certificate) == both


def test_a_bundle_has_two_roots_of_one_cluster_at_most(
    root: Authority, issuer: Authority, new_root: Authority, member: Make
) -> None:
    both = add_root((root.certificate,), new_root.certificate)
    third = authority.create_root("blue", now=NOW).certificate
    with pytest.raises(CertificateError, match="drop the old one first"):
        add_root(both, third)
    with pytest.raises(CertificateError, match="3 roots"):
        parse_bundle(format_certificates([*both, third]).encode())
    red = authority.create_root("red", now=NOW).certificate
    with pytest.raises(CertificateError, match="of cluster red"):
        add_root((root.certificate,), red)
    with pytest.raises(CertificateError, match="different clusters"):
        parse_bundle(format_certificates([root.certificate, red]).encode())
    with pytest.raises(CertificateError, match="twice"):
        parse_bundle(format_certificates([root.certificate] * 2).encode())
    for wrong in (issuer.certificate, member(Role.NODE).chain[0]):
        with pytest.raises(CertificateError, match="no root"):
            add_root((), wrong)


def test_the_last_root_stays(root: Authority) -> None:
    bundle = (root.certificate,)
    with pytest.raises(CertificateError, match="the only root"):
        drop_root(bundle, fingerprint(root.certificate), in_use=[], now=NOW)
    with pytest.raises(CertificateError, match="no root with the fingerprint"):
        drop_root(bundle, "sha256:00", in_use=[], now=NOW)

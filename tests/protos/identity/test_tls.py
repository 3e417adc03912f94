"""Real TLS between members: who is accepted as what. test_grpc_tls.py does the same with gRPC."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pliant.protos.identity import authority
from pliant.protos.identity.authority import DAY_S, Authority
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME, Role
from pliant.protos.identity.certificates import format_certificates
from pliant.protos.identity.trust_bundle import Bundle, add_root

from .conftest import NOW, Member, make_member

Make = Callable[..., Member]


def context(side: int, member: Member, roots: Bundle, folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(*member.write(folder))
    made.load_verify_locations(cadata=format_certificates(roots))
    return made


def connect(
    server: Member, client: Member, server_roots: Bundle, client_roots: Bundle, folder: Path
) -> list[str]:
    """Shake hands, and return the identity that each side sees of the other.

    Raises:
        ssl.SSLError: one of the two refuses.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = context(ssl.PROTOCOL_TLS_SERVER, server, server_roots, folder)
    asking = context(ssl.PROTOCOL_TLS_CLIENT, client, client_roots, folder)
    ends = [
        asking.wrap_bio(to_client, to_server, server_hostname=SERVER_DNS_NAME),
        serving.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    seen = []
    for end in ends:
        names: Any = (end.getpeercert() or {})["subjectAltName"]
        seen += [str(value) for kind, value in names if kind == "URI"]
    return seen


def test_server_and_node_accept_each_other(root: Authority, member: Make, tmp_path: Path) -> None:
    trusted = (root.certificate,)
    server = member(Role.SERVER, "server", addresses=["10.0.0.1", "front"])
    for role in (Role.NODE, Role.LOGIN_AGENT):
        seen = connect(server, member(role), trusted, trusted, tmp_path)
        assert seen == ["pliant://blue/server/server", f"pliant://blue/{role}/n7"]


def test_a_stolen_node_key_cannot_play_the_server(
    root: Authority, member: Make, tmp_path: Path
) -> None:
    trusted = (root.certificate,)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        connect(member(Role.NODE), member(Role.NODE), trusted, trusted, tmp_path)


def test_the_servers_certificate_is_not_one_of_a_client(
    root: Authority, member: Make, tmp_path: Path
) -> None:
    trusted, server = (root.certificate,), member(Role.SERVER, "server")
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        connect(server, server, trusted, trusted, tmp_path)


def test_members_of_another_authority_are_refused(
    root: Authority, member: Make, tmp_path: Path
) -> None:
    other_root = authority.create_root("blue", now=NOW)  # of the same name
    other = authority.create_issuer(other_root, now=NOW)
    trusted, false = (root.certificate,), (other_root.certificate,)
    server, node = member(Role.SERVER, "server"), member(Role.NODE)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get|verify failed"):
        connect(server, make_member(other, Role.NODE), trusted, trusted, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get|verify failed"):
        connect(make_member(other, Role.SERVER, "server"), node, false, trusted, tmp_path)


def test_an_expired_certificate_is_refused(root: Authority, tmp_path: Path) -> None:
    old_root = authority.create_root("blue", now=NOW - 100 * DAY_S)
    old = authority.create_issuer(old_root, now=NOW - 100 * DAY_S)
    expired = make_member(old, Role.NODE, now=NOW - 31 * DAY_S)
    server = make_member(old, Role.SERVER, "server", now=NOW - 31 * DAY_S)
    both = (old_root.certificate, root.certificate)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        connect(server, expired, both, both, tmp_path)


def test_a_member_of_an_authority_below_the_issuing_one_is_refused(
    root: Authority, issuer: Authority, member: Make, tmp_path: Path
) -> None:
    below = authority.create_issuer(issuer, now=NOW)
    made = make_member(below, Role.NODE)
    node = Member((*made.chain, issuer.certificate), made.key)
    trusted = (root.certificate,)
    with pytest.raises(ssl.SSLCertVerificationError, match="path length"):
        connect(member(Role.SERVER, "server"), node, trusted, trusted, tmp_path)


def test_during_a_roll_over_members_of_both_roots_accept_each_other(
    root: Authority, member: Make, tmp_path: Path
) -> None:
    new_root = authority.create_root("blue", now=NOW)
    new = authority.create_issuer(new_root, now=NOW)
    both = add_root((root.certificate,), new_root.certificate)
    servers = [member(Role.SERVER, "server"), make_member(new, Role.SERVER, "server")]
    nodes = [member(Role.NODE), make_member(new, Role.NODE)]
    for server in servers:
        for node in nodes:
            assert len(connect(server, node, both, both, tmp_path)) == 2
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(servers[1], nodes[0], (new_root.certificate,), both, tmp_path)

"""When a node asks for a new certificate, and what it does with the answer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pliant.nodectl.certified.renewal import RETRY_S, CertificateRenewal
from pliant.nodectl.certified.tls_link import CertificateLink, RenewedError
from pliant.protos import node_pb2 as wire
from pliant.protos.identity import authority, trust_bundle
from pliant.protos.identity.authority import DAY_S
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import format_certificates, renew_at
from pliant.protos.identity.node_files import load_node_identity
from tlskit import Membership


class Node:
    """A node with a clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.membership = Membership(folder / "server")
        self.directory = self.membership.join(folder / "node", "n1", ["127.0.0.1:1"])
        self.sent: list[wire.NodeReport] = []
        self.now = time.time()
        self.renewal = CertificateRenewal(self.directory, self.sent.append, lambda: self.now)
        self.renewal.begin(load_node_identity(self.directory))

    def answer(self, name: str = "n1", roots: bytes = b"") -> wire.Certificates:
        """Sign the last request, as the server does."""
        chain = authority.issue(
            self.membership.issuer,
            self.sent[-1].renew_certificate.signing_request,
            Identity("blue", Role.NODE, name),
            now=self.now,
        )
        return wire.Certificates(
            roots=roots or self.membership.roots, certificate=format_certificates(chain).encode()
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_node_asks_after_half_of_the_life_of_its_certificate(node: Node) -> None:
    half = renew_at(load_node_identity(node.directory).chain[0])
    assert 14 * DAY_S < half - node.now < 15 * DAY_S
    node.now = half - 1
    node.renewal.ask_if_due()
    assert node.sent == []
    node.now = half
    node.renewal.ask_if_due()
    node.renewal.ask_if_due()
    assert len(node.sent) == 1
    node.now += RETRY_S  # there was no answer
    node.renewal.ask_if_due()
    assert len(node.sent) == 2


def test_the_new_certificate_replaces_the_old_one(node: Node) -> None:
    before = load_node_identity(node.directory)
    node.now += 16 * DAY_S
    node.renewal.ask_if_due()
    renewed = node.renewal.save_certificates(node.answer())
    assert renewed is not None
    assert renewed == load_node_identity(node.directory)
    assert renewed.key != before.key
    assert renewed.identity == before.identity
    node.renewal.ask_if_due()
    assert len(node.sent) == 1, "it is not due for another fifteen days"


def test_wrong_answers_change_nothing(node: Node, tmp_path: Path) -> None:
    before = load_node_identity(node.directory)
    node.now += 16 * DAY_S
    node.renewal.ask_if_due()
    other = Membership(tmp_path / "other").roots
    good = node.answer()
    for sent in (
        node.answer(name="n2"),
        node.answer(roots=other),
        wire.Certificates(roots=b"nonsense", certificate=good.certificate),
        wire.Certificates(roots=good.roots, certificate=b"nonsense"),
        wire.Certificates(roots=good.roots, certificate=before.certificates),  # of another key
        wire.Certificates(roots=good.roots, refusal="no"),
        wire.Certificates(roots=other),
    ):
        assert node.renewal.save_certificates(sent) is None
    assert load_node_identity(node.directory) == before
    assert node.renewal.save_certificates(good) is not None


def test_a_certificate_that_was_not_asked_for_is_ignored(node: Node) -> None:
    before = load_node_identity(node.directory)
    sent = wire.Certificates(roots=node.membership.roots, certificate=before.certificates)
    assert node.renewal.save_certificates(sent) is None
    assert load_node_identity(node.directory) == before


def test_new_roots_are_saved_and_the_node_renews_when_it_is_told(node: Node) -> None:
    bundle = load_node_identity(node.directory).bundle
    other = authority.create_root("blue", now=node.now)
    both = format_certificates(trust_bundle.add_root(bundle, other.certificate)).encode()
    changed = node.renewal.save_certificates(wire.Certificates(roots=both, renew=True))
    assert changed is not None
    assert changed.roots == both
    assert len(node.sent) == 1, "the issuing authority was replaced"
    assert node.renewal.save_certificates(wire.Certificates(roots=both)) is None


def test_a_link_connects_again_with_a_new_certificate(node: Node) -> None:
    link = CertificateLink(node.directory, "n1", clock=lambda: node.now)
    assert link.address() == "127.0.0.1:1"
    node.now += 16 * DAY_S
    access = link.begin(wire.Welcome(application_address=":7001"), node.sent.append)
    assert access is not None
    assert access.address == "127.0.0.1:7001"
    before = load_node_identity(node.directory)
    link.on_beat()
    with pytest.raises(RenewedError):
        link.save_certificates(node.answer())
    assert load_node_identity(node.directory).key != before.key
    assert link.address() == "127.0.0.1:1"


@pytest.mark.parametrize(
    ("skew_s", "words"), [(-50.0, ""), (-90.0, "30 s behind"), (31 * DAY_S, "join")]
)
def test_a_wrong_clock_of_the_node_is_named(node: Node, skew_s: float, words: str) -> None:
    """A certificate is valid from a minute before it was issued."""
    issued = load_node_identity(node.directory).chain[0].not_valid_before_utc.timestamp() + 60
    link = CertificateLink(node.directory, "n1", clock=lambda: issued + skew_s)
    if not words:
        assert link.address()
        return
    with pytest.raises(OSError, match=words):
        link.address()


def test_a_host_that_joined_as_another_node_needs_a_restart(node: Node) -> None:
    with pytest.raises(OSError, match="restart its controller"):
        CertificateLink(node.directory, "n2").address()

"""Reading certificates back: whose, until when, from which cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from pliant.protos.identity import authority, certificates, keys
from pliant.protos.identity.authority import DAY_S, Authority
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.identity_errors import CertificateError, CertificateTimeError

from .conftest import NOW, Member, make_member

Make = Callable[..., Member]
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


def forge(
    issuer: Authority,
    uris: Sequence[str] = ("pliant://blue/node/n7",),
    uses: Sequence[x509.ObjectIdentifier] = (CLIENT,),
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    """Return a certificate with these contents, which `issue` would not make."""
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
    names = names or [x509.DNSName("n7")]
    key = keys.create_certificate_key().public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(NOW - 60, UTC))
        .not_valid_after(datetime.fromtimestamp(NOW + 3600, UTC))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()),
            critical=False,
        )
    )
    return builder.sign(issuer.key, hashes.SHA256())


def test_the_forger_can_make_a_good_one(root: Authority, issuer: Authority) -> None:
    chain = (forge(issuer), issuer.certificate)
    found = certificates.verify_chain(chain, [root.certificate], now=NOW)
    assert found == Identity("blue", Role.NODE, "n7")


@pytest.mark.parametrize(
    ("uris", "uses", "is_authority"),
    [
        ([], [CLIENT], False),
        (["pliant://blue/node/n7", "pliant://blue/node/n8"], [CLIENT], False),
        (["pliant://blue/manager/n7"], [CLIENT], False),
        (["https://blue/node/n7"], [CLIENT], False),
        (["pliant://blue/node/n7"], [SERVER], False),
        (["pliant://blue/node/n7"], [CLIENT, SERVER], False),
        (["pliant://blue/server/server"], [CLIENT], False),
        (["pliant://blue/node/n7"], [CLIENT], True),
    ],
)
def test_an_identity_is_one_uri_with_the_use_of_its_role(
    issuer: Authority,
    uris: list[str],
    uses: list[x509.ObjectIdentifier],
    is_authority: bool,
) -> None:
    with pytest.raises(CertificateError):
        certificates.read_identity(forge(issuer, uris, uses, is_authority=is_authority))


def test_an_authority_has_no_identity(root: Authority, issuer: Authority) -> None:
    for each in (root, issuer):
        with pytest.raises(CertificateError, match="not a certificate of a cluster"):
            certificates.read_identity(each.certificate)


def test_the_cluster_of_an_identity_is_that_of_its_root(root: Authority, issuer: Authority) -> None:
    chain = (forge(issuer, ["pliant://red/node/n7"]), issuer.certificate)
    with pytest.raises(CertificateError, match="cluster of its root"):
        certificates.verify_chain(chain, [root.certificate], now=NOW)


def test_certificates_survive_pem(member: Make) -> None:
    chain = member(Role.NODE).chain
    pem = certificates.format_certificates(chain).encode()
    assert certificates.parse_certificates(pem) == chain


@pytest.mark.parametrize("pem", [b"", b"junk", b"x" * 100_000], ids=["empty", "junk", "too long"])
def test_what_is_no_certificate_is_named(pem: bytes) -> None:
    with pytest.raises(CertificateError):
        certificates.parse_certificates(pem)


def test_no_flipped_byte_changes_what_a_certificate_says(root: Authority, member: Make) -> None:
    chain = member(Role.NODE).chain
    der = chain[0].public_bytes(Encoding.DER)
    for place in range(len(der)):
        changed = bytearray(der)
        changed[place] ^= 1
        try:
            leaf = x509.load_der_x509_certificate(bytes(changed))
            certificates.verify_chain((leaf, *chain[1:]), [root.certificate], now=NOW)
        except (ValueError, x509.InvalidVersion, CertificateError):
            continue
        # The number of unused bits at the end of the signature is not part of what is signed.
        assert leaf.tbs_certificate_bytes == chain[0].tbs_certificate_bytes


def test_the_fingerprint_is_that_of_the_public_key(root: Authority) -> None:
    key = root.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    expected = f"sha256:{hashlib.sha256(key).hexdigest()}"
    assert certificates.fingerprint(root.certificate) == expected


def test_renewal_is_due_after_half_of_the_lifetime(member: Make) -> None:
    certificate = member(Role.NODE).chain[0]
    assert certificates.renew_at(certificate) == pytest.approx(NOW + 15 * DAY_S, abs=31)


def test_a_clock_that_is_wrong_is_named_with_its_distance(root: Authority, member: Make) -> None:
    chain, roots = member(Role.NODE, lifetime_s=3600).chain, [root.certificate]
    for fine in (NOW - 60, NOW + 3600):  # a minute behind is tolerated
        assert certificates.verify_chain(chain, roots, now=fine).name == "n7"
    with pytest.raises(CertificateTimeError, match=r"clock of this host is 30 s behind .*NTP"):
        certificates.verify_chain(chain, roots, now=NOW - 90)
    with pytest.raises(CertificateTimeError, match=r"clock of this host is 5 s ahead .*NTP.*renew"):
        certificates.verify_chain(chain, roots, now=NOW + 3605)


def test_an_expired_root_is_named() -> None:
    old_root = authority.create_root("blue", now=NOW - 3651 * DAY_S)
    old = authority.create_issuer(old_root, now=NOW - 3640 * DAY_S)
    node = make_member(old, Role.NODE, now=NOW - 3640 * DAY_S)
    with pytest.raises(CertificateTimeError):
        certificates.verify_chain(node.chain, [old_root.certificate], now=NOW)


def test_a_chain_leads_to_a_root(root: Authority, member: Make) -> None:
    chain = member(Role.NODE).chain
    other = authority.create_root("blue", now=NOW)
    for wrong, roots in [
        (chain, [other.certificate]),
        (chain[:1], [root.certificate]),
        (chain[::-1], [root.certificate]),
        ((), [root.certificate]),
        (chain, []),
    ]:
        with pytest.raises(CertificateError):
            certificates.verify_chain(wrong, roots, now=NOW)

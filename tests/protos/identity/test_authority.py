"""What an authority issues: nothing of a signing request but its key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pliant.protos.identity import authority, keys
from pliant.protos.identity.authority import DAY_S, Authority
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME, Identity, Role
from pliant.protos.identity.certificates import ends_at, read_identity, starts_at, verify_chain
from pliant.protos.identity.identity_errors import (
    CertificateError,
    CertificateTimeError,
    IdentityKeyError,
    IdentityNameError,
    SigningRequestError,
)

from .conftest import NOW, Member, make_member

Make = Callable[..., Member]
NODE = Identity("blue", Role.NODE, "n7")


def request(key: object) -> bytes:
    return authority.create_request(key)  # type: ignore[arg-type]  # also of wrong types


@pytest.mark.parametrize(
    ("role", "use", "days"),
    [
        (Role.SERVER, ExtendedKeyUsageOID.SERVER_AUTH, 365),
        (Role.NODE, ExtendedKeyUsageOID.CLIENT_AUTH, 30),
        (Role.LOGIN_AGENT, ExtendedKeyUsageOID.CLIENT_AUTH, 30),
    ],
)
def test_each_role_has_one_use_and_its_lifetime(
    root: Authority, member: Make, role: Role, use: x509.ObjectIdentifier, days: int
) -> None:
    chain = member(role).chain
    found = chain[0].extensions
    assert list(found.get_extension_for_class(x509.ExtendedKeyUsage).value) == [use]
    assert not found.get_extension_for_class(x509.BasicConstraints).value.ca
    assert starts_at(chain[0]) == NOW - 60
    assert ends_at(chain[0]) == NOW + days * DAY_S
    assert verify_chain(chain, [root.certificate], now=NOW) == Identity("blue", role, "n7")


def test_only_a_server_has_addresses(member: Make) -> None:
    server = member(Role.SERVER, addresses=["Front", "10.0.0.1", "front", SERVER_DNS_NAME, "::1"])
    found = authority.server_addresses(server.chain[0])
    assert found == (SERVER_DNS_NAME, "front", "10.0.0.1", "::1")
    with pytest.raises(CertificateError, match="only a server"):
        member(Role.NODE, addresses=["front"])
    with pytest.raises(IdentityNameError):
        member(Role.SERVER, addresses=["front:443"])


def test_root_and_issuing_authority(root: Authority, issuer: Authority) -> None:
    for each, length, days in ((root, 1, 3650), (issuer, 0, 365)):
        found = each.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert found.critical
        assert (found.value.ca, found.value.path_length) == (True, length)
        assert ends_at(each.certificate) == NOW + days * DAY_S
    issuer.certificate.verify_directly_issued_by(root.certificate)


def test_the_wishes_of_a_request_are_ignored(issuer: Authority) -> None:
    key = keys.create_certificate_key()
    wishes = [
        x509.UniformResourceIdentifier("pliant://blue/server/server"),
        x509.DNSName(SERVER_DNS_NAME),
    ]
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=5), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
        .add_extension(x509.SubjectAlternativeName(wishes), critical=True)
    )
    wish = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    modest = request(key)
    made = [authority.issue(issuer, each, NODE, now=NOW)[0] for each in (wish, modest)]
    assert made[0].subject == made[1].subject == x509.Name([])
    assert list(made[0].extensions) == list(made[1].extensions)
    assert read_identity(made[0]) == NODE
    assert made[0].public_key() == key.public_key()


def test_a_request_must_be_signed_with_its_own_key(issuer: Authority) -> None:
    pem = request(keys.create_certificate_key())
    der = x509.load_pem_x509_csr(pem).public_bytes(Encoding.DER)
    # The last byte belongs to the signature; the 60th to the key.
    for place in (len(der) - 1, 60):
        changed = bytearray(der)
        changed[place] ^= 1
        with pytest.raises(SigningRequestError):
            authority.issue(issuer, to_pem(bytes(changed)), NODE, now=NOW)


def to_pem(der: bytes) -> bytes:
    import base64

    kind = b"CERTIFICATE REQUEST"
    return b"-----BEGIN %s-----\n%s-----END %s-----\n" % (kind, base64.encodebytes(der), kind)


def test_no_flipped_byte_changes_the_key_of_a_request(issuer: Authority) -> None:
    key = keys.create_certificate_key()
    der = x509.load_pem_x509_csr(request(key)).public_bytes(Encoding.DER)
    for place in range(len(der)):
        changed = bytearray(der)
        changed[place] ^= 1
        try:
            made = authority.issue(issuer, to_pem(bytes(changed)), NODE, now=NOW)
        except SigningRequestError:
            continue
        # The number of unused bits at the end of the signature is not part of what is signed.
        assert made[0].public_key() == key.public_key()


@pytest.mark.parametrize(
    "pem",
    [b"", b"junk", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n", b"x" * 20_000],
    ids=["empty", "junk", "cut off", "too long"],
)
def test_a_damaged_request_is_refused(issuer: Authority, pem: bytes) -> None:
    with pytest.raises(SigningRequestError):
        authority.issue(issuer, pem, NODE, now=NOW)


def test_other_types_of_keys_are_refused(issuer: Authority) -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    others = [
        builder.sign(ed25519.Ed25519PrivateKey.generate(), None),
        builder.sign(rsa.generate_private_key(65537, 2048), hashes.SHA256()),
        builder.sign(ec.generate_private_key(ec.SECP384R1()), hashes.SHA256()),
    ]
    for other in others:
        with pytest.raises(SigningRequestError, match="ECDSA P-256"):
            authority.issue(issuer, other.public_bytes(Encoding.PEM), NODE, now=NOW)


def test_lifetimes_are_limited(member: Make) -> None:
    assert ends_at(member(Role.NODE, lifetime_s=3600).chain[0]) == NOW + 3600
    for wrong in (0, -1, 31 * DAY_S):
        with pytest.raises(CertificateError, match="lifetime"):
            member(Role.NODE, lifetime_s=wrong)


def test_no_certificate_outlives_its_issuer(issuer: Authority, member: Make) -> None:
    late = member(Role.NODE, now=NOW + 350 * DAY_S).chain[0]
    assert ends_at(late) == ends_at(issuer.certificate)
    with pytest.raises(CertificateTimeError, match="issuing authority was valid until"):
        member(Role.NODE, now=NOW + 366 * DAY_S)
    with pytest.raises(CertificateTimeError, match="NTP"):
        member(Role.NODE, now=NOW - 3600)


def test_an_authority_names_members_of_its_own_cluster_only(issuer: Authority) -> None:
    stranger = Identity("red", Role.NODE, "n7")
    pem = request(keys.create_certificate_key())
    with pytest.raises(CertificateError, match="cluster blue cannot issue"):
        authority.issue(issuer, pem, stranger, now=NOW)


def test_an_authority_has_the_key_of_its_certificate(root: Authority, issuer: Authority) -> None:
    with pytest.raises(CertificateError, match="belong together"):
        Authority(root.certificate, issuer.key)


def test_a_certificate_can_be_issued_again_under_another_authority(member: Make) -> None:
    new_root = authority.create_root("blue", now=NOW)
    new = authority.create_issuer(new_root, now=NOW)
    old = member(Role.SERVER, "server", addresses=["front", "10.0.0.1"]).chain[0]
    chain = authority.reissue(new, old, now=NOW + 5)
    assert verify_chain(chain, [new_root.certificate], now=NOW) == read_identity(old)
    assert chain[0].public_key() == old.public_key()
    assert authority.server_addresses(chain[0]) == authority.server_addresses(old)
    with pytest.raises(CertificateError):
        authority.reissue(new, new_root.certificate, now=NOW)


def test_keys_survive_their_files_and_other_types_are_refused() -> None:
    certificate_key, order_key = keys.create_certificate_key(), keys.create_order_key()
    one = keys.format_private_key(certificate_key).encode()
    other = keys.format_private_key(order_key).encode()
    public = keys.format_public_key(order_key.public_key()).encode()
    assert keys.parse_certificate_key(one).public_key() == certificate_key.public_key()
    assert keys.parse_order_key(other).public_key() == order_key.public_key()
    assert keys.parse_order_public_key(public) == order_key.public_key()
    for parse, wrong in [
        (keys.parse_certificate_key, other),
        (keys.parse_order_key, one),
        (keys.parse_order_public_key, other),
        (keys.parse_order_key, b""),
    ]:
        with pytest.raises(IdentityKeyError):
            parse(wrong)


def test_two_members_of_one_name_have_different_certificates(issuer: Authority) -> None:
    one, other = make_member(issuer, Role.NODE), make_member(issuer, Role.NODE)
    assert one.chain[0].serial_number != other.chain[0].serial_number

"""Issue certificates: a root certifies an issuing authority, which certifies all members.

The members of a cluster are the server, the nodes and the login agents.

The root's key is used only to make an issuing authority, about twice a year, and can be kept
offline. The issuing authority's key stays on the server's host, because the server issues
certificates to nodes while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from pliant.protos.identity import keys
from pliant.protos.identity.certificate_names import (
    SERVER_DNS_NAME,
    Identity,
    Role,
    check_name,
    parse_host,
)
from pliant.protos.identity.certificates import USES, check_time, cluster_of, ends_at, read_identity
from pliant.protos.identity.identity_errors import CertificateError, SigningRequestError

DAY_S = 86_400.0
ROOT_LIFETIME_S = 3650 * DAY_S
ISSUER_LIFETIME_S = 365 * DAY_S
#: The longest that a certificate of each role is valid.
LIFETIMES_S = {
    Role.SERVER: 365 * DAY_S,
    Role.NODE: 30 * DAY_S,
    Role.LOGIN_AGENT: 30 * DAY_S,
}
#: Certificates are valid from this long ago, for hosts whose clocks are behind.
MAX_CLOCK_SKEW_S = 60.0
#: Bytes of the longest signing request that is read; one has about 400.
MAX_REQUEST_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate that may issue other certificates, with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __post_init__(self) -> None:
        if self.certificate.public_key() != self.key.public_key():
            raise CertificateError("key and certificate of the authority do not belong together")


def create_root(cluster: str, *, now: float) -> Authority:
    """Create the root authority of a cluster, with a certificate that is signed with its own key.

    Args:
        cluster: the cluster's name.
        now: the present time, in seconds since the epoch.
    """
    check_name("cluster", cluster)
    key = keys.create_certificate_key()
    subject = _subject(cluster, "root", key.public_key())
    builder = _builder(subject, subject, key.public_key(), now, now + ROOT_LIFETIME_S)
    return Authority(_sign_authority(builder, key, key, path_length=1), key)


def create_issuer(root: Authority, *, now: float) -> Authority:
    """Create an issuing authority, which can certify servers, nodes and login agents.

    It cannot certify further authorities.

    Args:
        root: the root of the cluster, which signs the certificate of the new authority.
        now: the present time, in seconds since the epoch.
    """
    check_time(root.certificate, "the certificate of the root", now)
    key = keys.create_certificate_key()
    subject = _subject(cluster_of(root.certificate), "issuing authority", key.public_key())
    end = min(now + ISSUER_LIFETIME_S, ends_at(root.certificate))
    builder = _builder(subject, root.certificate.subject, key.public_key(), now, end)
    return Authority(_sign_authority(builder, key, root.key, path_length=0), key)


def create_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a signing request in PEM form for a key; the name in it is empty.

    The issuer decides which name the certificate gets.
    """
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def issue(
    issuer: Authority,
    request: bytes,
    identity: Identity,
    *,
    now: float,
    lifetime_s: float | None = None,
    addresses: Iterable[str] = (),
) -> tuple[x509.Certificate, ...]:
    """Issue a certificate for the key of a signing request.

    Only the key of the request is used. The caller decides identity, lifetime and use.

    Args:
        issuer: the issuing authority.
        request: the signing request in PEM form, signed with the key that it names.
        identity: the identity that the certificate names.
        now: the present time, in seconds since the epoch.
        lifetime_s: how long the certificate is valid, in seconds. None for the longest time that
            its role allows.
        addresses: the addresses of a server, in addition to `SERVER_DNS_NAME`.

    Returns:
        The certificate and that of the issuer.

    Raises:
        SigningRequestError: the request is damaged, its signature is wrong, or its key has
            another type than ECDSA P-256.
        CertificateError: the issuer has expired or belongs to another cluster, the lifetime is
            too long, or addresses are given for another member than a server.
    """
    key = read_request(request)
    return _issue(issuer, key, identity, now=now, lifetime_s=lifetime_s, addresses=addresses)


def reissue(
    issuer: Authority, certificate: x509.Certificate, *, now: float
) -> tuple[x509.Certificate, ...]:
    """Return a new certificate for the key and identity of an old one, and that of the issuer.

    The caller must have verified the old certificate. Nothing in it is checked here.

    Raises:
        CertificateError: the certificate is not a cluster member's, or the issuer has expired.
    """
    identity, key = read_identity(certificate), certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not keys.is_p256(key):
        raise CertificateError(f"the key of {identity.uri} is not of type ECDSA P-256")
    addresses = server_addresses(certificate) if identity.role is Role.SERVER else ()
    return _issue(issuer, key, identity, now=now, lifetime_s=None, addresses=addresses)


def server_addresses(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the addresses in a server's certificate, beginning with `SERVER_DNS_NAME`."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    ips = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, ips))


def _issue(
    issuer: Authority,
    key: ec.EllipticCurvePublicKey,
    identity: Identity,
    *,
    now: float,
    lifetime_s: float | None,
    addresses: Iterable[str],
) -> tuple[x509.Certificate, ...]:
    longest = LIFETIMES_S[identity.role]
    lifetime_s = longest if lifetime_s is None else lifetime_s
    if not 0 < lifetime_s <= longest:
        raise CertificateError(
            f"lifetime of {identity.uri}: expected more than 0 s and at most {longest:.0f} s, "
            f"got {lifetime_s:.0f} s"
        )
    check_time(issuer.certificate, "the certificate of the issuing authority", now)
    if cluster_of(issuer.certificate) != identity.cluster:
        raise CertificateError(
            f"the authority of cluster {cluster_of(issuer.certificate)} cannot issue a "
            f"certificate to {identity.uri}"
        )
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    hosts = [parse_host(each) for each in addresses]
    if identity.role is Role.SERVER:
        # Each once, in the given order.
        alternatives += map(_general_name, dict.fromkeys([SERVER_DNS_NAME, *hosts]))
    elif hosts:
        raise CertificateError(f"{identity.uri}: only a server has addresses in its certificate")
    # A certificate that outlives its issuer would be refused, with a misleading reason.
    end = min(now + lifetime_s, ends_at(issuer.certificate))
    # The subject is empty, so that the identity is in one place. The alternative names must then
    # be critical (RFC 5280, section 4.2.1.6).
    builder = (
        _builder(x509.Name([]), issuer.certificate.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([USES[identity.role]]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=True)
        .add_extension(_authority_key_id(issuer.key), critical=False)
    )
    return builder.sign(issuer.key, hashes.SHA256()), issuer.certificate


def read_request(pem: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key of a signing request.

    Raises:
        SigningRequestError: the request is damaged, its signature is wrong, or its key has
            another type than ECDSA P-256.
    """
    if len(pem) > MAX_REQUEST_BYTES:
        raise SigningRequestError(f"the signing request has more than {MAX_REQUEST_BYTES} bytes")
    try:
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        is_signed = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise SigningRequestError(f"the signing request is damaged: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not keys.is_p256(key):
        raise SigningRequestError("the key of the signing request is not of type ECDSA P-256")
    if not is_signed:
        raise SigningRequestError("the signing request is not signed with the key that it names")
    return key


def _subject(cluster: str, kind: str, key: ec.EllipticCurvePublicKey) -> x509.Name:
    """Return a unique name for the certificate of an authority.

    Members find the issuer of a certificate by its name, so two roots with the same name would be
    confused. If an authority had the same name as its issuer, it would not count for the limit on
    the length of a certificate chain.
    """
    key_id = x509.SubjectKeyIdentifier.from_public_key(key).digest.hex()[:16]
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster),
            x509.NameAttribute(NameOID.COMMON_NAME, f"Pliant {kind} {key_id}"),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: float, end: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - MAX_CLOCK_SKEW_S, UTC))
        .not_valid_after(datetime.fromtimestamp(end, UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _sign_authority(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    path_length: int,
) -> x509.Certificate:
    constraints = x509.BasicConstraints(ca=True, path_length=path_length)
    builder = builder.add_extension(constraints, critical=True).add_extension(
        _key_usage(is_authority=True), critical=True
    )
    if signer is not key:
        builder = builder.add_extension(_authority_key_id(signer), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _authority_key_id(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str | IPv4Address | IPv6Address) -> x509.GeneralName:
    return x509.DNSName(host) if isinstance(host, str) else x509.IPAddress(host)

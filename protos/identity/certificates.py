"""Read certificates: their owner, their period of validity, and whether a cluster issued them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from pliant.protos.identity.certificate_names import SERVER_DNS_NAME, Identity, Role
from pliant.protos.identity.identity_errors import CertificateError, CertificateTimeError

#: Bytes of the largest chain or bundle that is read; a chain of two has about 1,500.
MAX_PEM_BYTES = 1 << 16
_BAD_EXTENSIONS = (
    ValueError,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.UnsupportedGeneralNameType,
)
#: The one use that each role's certificate allows. A server needs no certificate as a client.
USES = {
    Role.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
    Role.NODE: ExtendedKeyUsageOID.CLIENT_AUTH,
    Role.LOGIN_AGENT: ExtendedKeyUsageOID.CLIENT_AUTH,
}


def parse_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Parse a PEM text with a chain (the owner's certificate first) or a bundle of roots.

    Raises:
        CertificateError: there is no certificate, or one is damaged.
    """
    if len(pem) > MAX_PEM_BYTES:
        raise CertificateError(f"more than {MAX_PEM_BYTES} bytes of certificates")
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except (ValueError, x509.InvalidVersion) as error:
        raise CertificateError(f"not certificates in PEM form: {error}") from None


def format_certificates(certificates: Sequence[x509.Certificate]) -> str:
    """Return certificates as PEM, one after the other."""
    return "".join(each.public_bytes(Encoding.PEM).decode("ascii") for each in certificates)


def read_identity(certificate: x509.Certificate) -> Identity:
    """Return the owner that a certificate names.

    Raises:
        CertificateError: the certificate does not have exactly one identity, or allows a use that
            its role does not allow.
    """
    try:
        found = certificate.extensions
        names = found.get_extension_for_class(x509.SubjectAlternativeName).value
        uses = found.get_extension_for_class(x509.ExtendedKeyUsage).value
        is_authority = found.get_extension_for_class(x509.BasicConstraints).value.ca
    except _BAD_EXTENSIONS as error:
        raise CertificateError(f"not a certificate of a cluster: {error}") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise CertificateError(f"the certificate has {len(uris)} identities, expected one")
    identity = Identity.from_uri(uris[0])
    if is_authority or list(uses) != [USES[identity.role]]:
        raise CertificateError(
            f"the certificate of {identity.uri} allows another use than that of its role"
        )
    return identity


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate's public key, as ``sha256:`` and hexadecimal digits.

    The key is hashed with its type (SubjectPublicKeyInfo), so the fingerprint of a root stays the
    same if its certificate is made again with the same key.
    """
    return key_fingerprint(certificate.public_key())


def key_fingerprint(key: CertificatePublicKeyTypes) -> str:
    """Return the SHA-256 of a public key with its type, as ``sha256:`` and hexadecimal digits."""
    content = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def starts_at(certificate: x509.Certificate) -> float:
    """Return when a certificate becomes valid, in seconds since the epoch."""
    return certificate.not_valid_before_utc.timestamp()


def ends_at(certificate: x509.Certificate) -> float:
    """Return when a certificate expires, in seconds since the epoch."""
    return certificate.not_valid_after_utc.timestamp()


def renew_at(certificate: x509.Certificate) -> float:
    """Return when to renew a certificate: after half of its lifetime, in seconds since the epoch.

    The other half is the time in which a failing renewal can be noticed and repaired.
    """
    return (starts_at(certificate) + ends_at(certificate)) / 2


def check_time(certificate: x509.Certificate, what: str, now: float) -> None:
    """Check that a certificate is valid now.

    Args:
        certificate: the certificate.
        what: the name of the certificate, for the error.
        now: the time of this host's clock, in seconds since the epoch.

    Raises:
        CertificateTimeError: the certificate is not valid yet, or not any more.
    """
    early, late = starts_at(certificate) - now, now - ends_at(certificate)
    if early > 0:
        raise CertificateTimeError(
            f"{what} is valid from {_format_time(starts_at(certificate))}: the clock of this host "
            f"is {_round_up(early)} s behind that; set it with NTP"
        )
    if late > 0:
        raise CertificateTimeError(
            f"{what} was valid until {_format_time(ends_at(certificate))}: the clock of this host "
            f"is {_round_up(late)} s ahead of that; set it with NTP, or renew the certificate if "
            "the clock is right"
        )


def verify_chain(
    chain: Sequence[x509.Certificate], roots: Sequence[x509.Certificate], *, now: float
) -> Identity:
    """Check that a cluster has issued a certificate, and return the certificate's owner.

    TLS checks the certificates of its peers itself. This function is for certificates that arrive
    in another way, such as at a join.

    Args:
        chain: the certificate, then those of the authorities between it and a root.
        roots: the bundle of trusted roots.
        now: the present time, in seconds since the epoch.

    Raises:
        CertificateTimeError: one of the certificates is not valid at this time.
        CertificateError: the chain does not lead to one of the roots, or the identity is wrong.
    """
    if not chain:
        raise CertificateError("no certificate")
    identity = read_identity(chain[0])
    for certificate in chain:
        check_time(certificate, f"the certificate of {describe(certificate)}", now)
    try:
        policy = PolicyBuilder().store(Store(list(roots))).time(datetime.fromtimestamp(now, UTC))
        if identity.role is Role.SERVER:
            name = x509.DNSName(SERVER_DNS_NAME)
            verified = policy.build_server_verifier(name).verify(chain[0], list(chain[1:]))
        else:
            verified = policy.build_client_verifier().verify(chain[0], list(chain[1:])).chain
    except (VerificationError, ValueError) as error:
        for root in roots:
            check_time(root, f"the certificate of {describe(root)}", now)
        raise CertificateError(
            f"the certificate of {identity.uri} was not issued by this cluster: {error}"
        ) from None
    if cluster_of(verified[-1]) != identity.cluster:
        raise CertificateError(f"{identity.uri} is not a name in the cluster of its root")
    return identity


def cluster_of(authority: x509.Certificate) -> str:
    """Return the cluster of a root or issuing authority; empty if it names none."""
    found = authority.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
    return str(found[0].value) if len(found) == 1 else ""


def describe(certificate: x509.Certificate) -> str:
    """Return the owner of a certificate as text, for messages."""
    try:
        return read_identity(certificate).uri
    except CertificateError:
        return certificate.subject.rfc4514_string() or "an unknown owner"


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _round_up(seconds: float) -> int:
    return int(-(-seconds // 1))

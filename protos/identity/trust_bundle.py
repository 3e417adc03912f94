"""The roots that members of a cluster trust: read them, add one, drop one.

A bundle holds one root, or two while the root is replaced. The cluster keeps running during these
steps:

1. `add_root`: distribute a bundle with the old and the new root to every member.
2. Make an issuing authority under the new root, and issue each certificate again
   (`authority.create_issuer`, `authority.reissue`, or a renewal by the member).
3. `drop_root`: when no certificate needs the old root any more, distribute the bundle without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from pliant.protos.identity.certificates import (
    cluster_of,
    describe,
    fingerprint,
    parse_certificates,
    verify_chain,
)
from pliant.protos.identity.identity_errors import CertificateError

MAX_ROOTS = 2

Bundle = tuple[x509.Certificate, ...]


def parse_bundle(pem: bytes) -> Bundle:
    """Parse the root certificates that members of a cluster trust.

    Raises:
        CertificateError: there is no root, there are too many, or one did not sign itself.
    """
    roots = parse_certificates(pem)
    if len(roots) > MAX_ROOTS:
        raise CertificateError(f"{len(roots)} roots in a bundle, expected at most {MAX_ROOTS}")
    if len(set(map(fingerprint, roots))) != len(roots):
        raise CertificateError("a root is in the bundle twice")
    for root in roots:
        _check_root(root)
    if len(set(map(cluster_of, roots))) != 1:
        raise CertificateError("the roots of the bundle are of different clusters")
    return roots


def add_root(bundle: Bundle, root: x509.Certificate) -> Bundle:
    """Return a copy of a bundle that also trusts a new root.

    Raises:
        CertificateError: ``root`` is no root of this cluster, or a replacement is in progress.
    """
    _check_root(root)
    if fingerprint(root) in map(fingerprint, bundle):
        return bundle
    if len(bundle) >= MAX_ROOTS:
        raise CertificateError(f"the bundle has {len(bundle)} roots: drop the old one first")
    if bundle and cluster_of(root) != cluster_of(bundle[0]):
        raise CertificateError(
            f"the root is of cluster {cluster_of(root)}, not of {cluster_of(bundle[0])}"
        )
    return (*bundle, root)


def drop_root(
    bundle: Bundle, old: str, *, in_use: Sequence[Sequence[x509.Certificate]], now: float
) -> Bundle:
    """Return a copy of a bundle without one root, which members then no longer trust.

    Args:
        bundle: the roots that are trusted now.
        old: the fingerprint of the root to drop.
        in_use: the certificate chains of all members. Each must be valid without the old root.
        now: the present time, in seconds since the epoch.

    Raises:
        CertificateError: the bundle does not have the root or has no other one, or a chain is not
            valid without it.
    """
    left = tuple(root for root in bundle if fingerprint(root) != old)
    if len(left) == len(bundle):
        raise CertificateError(f"the bundle has no root with the fingerprint {old}")
    if not left:
        raise CertificateError(f"{old} is the only root: add the new one first")
    for chain in in_use:
        try:
            verify_chain(chain, left, now=now)
        except CertificateError as error:
            owner = describe(chain[0]) if chain else "a member"
            raise CertificateError(f"{owner} still needs the root {old}: {error}") from None
    return left


def _check_root(root: x509.Certificate) -> None:
    try:
        root.verify_directly_issued_by(root)
        is_authority = root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        raise CertificateError(f"{describe(root)} did not sign itself: it is no root") from None
    if not is_authority or not cluster_of(root):
        raise CertificateError(f"{describe(root)} is no root of a cluster")

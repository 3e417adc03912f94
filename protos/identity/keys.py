"""Make keys, and convert them to and from PEM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from pliant.protos.identity.identity_errors import IdentityKeyError


def create_certificate_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key for a certificate (ECDSA P-256, which every TLS library supports)."""
    return ec.generate_private_key(ec.SECP256R1())


def create_order_key() -> ed25519.Ed25519PrivateKey:
    """Return a new key that signs launch orders."""
    return ed25519.Ed25519PrivateKey.generate()


def format_private_key(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> str:
    """Return a private key as PEM, without a passphrase: the mode of its file protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode("ascii")


def format_public_key(key: ed25519.Ed25519PublicKey) -> str:
    """Return a public key as PEM."""
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode("ascii")


def parse_certificate_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Read the private key of a certificate from PEM text.

    Raises:
        IdentityKeyError: the text is not a private key of type ECDSA P-256.
    """
    key = _parse(pem, lambda text: serialization.load_pem_private_key(text, None))
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not is_p256(key.public_key()):
        raise IdentityKeyError("not a private key of type ECDSA P-256")
    return key


def parse_order_key(pem: bytes) -> ed25519.Ed25519PrivateKey:
    """Parse the private key that signs launch orders; ``pem`` is its PEM text.

    Raises:
        IdentityKeyError: the text is not a private key of type Ed25519.
    """
    key = _parse(pem, lambda text: serialization.load_pem_private_key(text, None))
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise IdentityKeyError("not a private key of type Ed25519")
    return key


def parse_order_public_key(pem: bytes) -> ed25519.Ed25519PublicKey:
    """Parse the public key with which nodes verify launch orders; ``pem`` is its PEM text.

    Raises:
        IdentityKeyError: the text is not a public key of type Ed25519.
    """
    key = _parse(pem, serialization.load_pem_public_key)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise IdentityKeyError("not a public key of type Ed25519")
    return key


def is_p256(key: object) -> bool:
    """Return whether a public key is of the type ECDSA P-256, which certificates must have."""
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)


def _parse(pem: bytes, load: Callable[[bytes], Any]) -> Any:
    try:
        return load(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # TypeError: the key needs a passphrase.
        raise IdentityKeyError("not a key in PEM form, damaged, or with a passphrase") from None

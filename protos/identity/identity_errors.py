"""The errors of the identity of a cluster."""

from __future__ import annotations

from pliant.core.support.base_error import PliantError


class IdentityError(PliantError):
    """The base class of the errors in this package."""


class IdentityNameError(IdentityError):
    """A name or an address cannot be part of a certificate."""


class IdentityKeyError(IdentityError):
    """A key cannot be read, or is of another type than the one that is needed."""


class SigningRequestError(IdentityError):
    """A signing request is damaged, has a wrong signature, or is for a key of a wrong type."""


class CertificateError(IdentityError):
    """A certificate cannot be read, is not of this cluster, or does not permit this use."""


class CertificateTimeError(CertificateError, code="clock-skew"):
    """A certificate has expired or is not valid yet; a clock may be wrong."""


class JoinTokenError(IdentityError):
    """A join token cannot be read, is unknown, was used, or has expired."""


class JoinError(IdentityError):
    """A host cannot join: the server is unreachable, is not the one in the token, or refuses."""


class ReplayedOrderError(IdentityError):
    """An order was carried out before, or is so old that this can no longer be known."""


class StoredIdentityError(IdentityError):
    """A file with keys or certificates is missing, damaged, or must not be overwritten."""

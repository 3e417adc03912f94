"""Single-use tokens with which the administrator admits a node to a cluster.

The text of a token is one line of letters and digits, which is copied to the node. It contains the
server's address and the fingerprints of its roots, so that the node can check the server before it
sends anything. It also contains the id of the token, by which the server finds it, and a secret,
which proves that the node has the token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.identity.identity_errors import JoinTokenError

_PREFIX = "pliantjoin1"
_ID_BYTES = 8
_SECRET_BYTES = 32
_DIGEST_BYTES = 32
_CHECKSUM_BYTES = 5
_MAX_ADDRESS_BYTES = 255
_MAX_TEXT = 1024
#: Roots whose fingerprints a token may carry: two while a root is replaced.
MAX_ROOTS = 2
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class JoinToken:
    """The token that the administrator copies to a host that will become a node.

    Raises:
        JoinTokenError: a field is not usable.
    """

    id: str
    secret: bytes = field(repr=False)
    #: Of the public keys of the roots, one of which the server must have.
    fingerprints: tuple[str, ...]
    #: Of the server, as HOST:PORT.
    address: str

    def __post_init__(self) -> None:
        if not re.fullmatch(rf"[0-9a-f]{{{2 * _ID_BYTES}}}", self.id):
            raise JoinTokenError("the id of the token is wrong")
        if len(self.secret) != _SECRET_BYTES:
            raise JoinTokenError("the secret of the token has a wrong length")
        known = all(map(_FINGERPRINT.fullmatch, self.fingerprints))
        if not known or not 1 <= len(self.fingerprints) <= MAX_ROOTS:
            raise JoinTokenError(f"expected 1 to {MAX_ROOTS} fingerprints of the form sha256:HEX")
        _check_address(self.address)

    def format(self) -> str:
        """Return the token as one line without spaces, so that a double click selects it."""
        digests = b"".join(bytes.fromhex(each.partition(":")[2]) for each in self.fingerprints)
        body = (
            bytes.fromhex(self.id)
            + self.secret
            + bytes([len(self.fingerprints)])
            + digests
            + self.address.encode("ascii")
        )
        coded = base64.b32encode(body + _checksum(body)).decode("ascii")
        return f"{_PREFIX}x{coded.rstrip('=').lower()}"


def create_token(fingerprints: Sequence[str], address: str) -> JoinToken:
    """Create a token with a new id and a new secret.

    Raises:
        JoinTokenError: a value is not usable.
    """
    return JoinToken(
        id=secrets.token_hex(_ID_BYTES),
        secret=secrets.token_bytes(_SECRET_BYTES),
        fingerprints=tuple(fingerprints),
        address=address,
    )


def parse_token(text: str) -> JoinToken:
    """Read a token from text; white space, such as line breaks, and case do not matter.

    Raises:
        JoinTokenError: the text is not a token of this version, or was not copied correctly.
    """
    text = "".join(text.split()).lower()
    if not text.startswith(f"{_PREFIX}x"):
        raise JoinTokenError(f"not a join token: it does not begin with {_PREFIX}")
    if len(text) > _MAX_TEXT:
        raise JoinTokenError(f"not a join token: longer than {_MAX_TEXT} characters")
    coded = text.removeprefix(f"{_PREFIX}x")
    try:
        content = base64.b32decode(coded.upper() + "=" * (-len(coded) % 8))
    except (binascii.Error, ValueError):
        content = b""
    body, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if len(content) <= _CHECKSUM_BYTES or checksum != _checksum(body):
        raise JoinTokenError("the join token has a typo or is not complete: copy it again")
    token = _parse_body(body)
    if token.format() != text:  # several spellings of the last character give the same bytes
        raise JoinTokenError("the join token has a typo or is not complete: copy it again")
    return token


def _parse_body(body: bytes) -> JoinToken:
    start = _ID_BYTES + _SECRET_BYTES
    if len(body) <= start:
        raise JoinTokenError("the join token is too short: make a new one")
    end = start + 1 + body[start] * _DIGEST_BYTES
    digests = body[start + 1 : end]
    try:
        address = body[end:].decode("ascii")
    except UnicodeDecodeError:
        raise JoinTokenError("the address in the join token is not ASCII") from None
    return JoinToken(
        id=body[:_ID_BYTES].hex(),
        secret=body[_ID_BYTES:start],
        fingerprints=tuple(
            f"sha256:{digests[at : at + _DIGEST_BYTES].hex()}"
            for at in range(0, len(digests), _DIGEST_BYTES)
        ),
        address=address,
    )


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(_PREFIX.encode() + body).digest()[:_CHECKSUM_BYTES]


def _check_address(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError as error:
        raise JoinTokenError(f"address of the server: {error}") from None
    is_text = text.isascii() and text.isprintable() and " " not in text
    if not isinstance(address, TcpAddress) or not is_text or len(text) > _MAX_ADDRESS_BYTES:
        raise JoinTokenError(f"address of the server: expected HOST:PORT, got {text!r}")

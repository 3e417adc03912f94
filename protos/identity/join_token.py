"""Single-use tokens with which the administrator admits a node to a cluster.

The text of a token is one line of letters and digits, to be copied to the node. It tells the node
where the server is and which root it has, so that the node can check the server before it sends
anything. It tells the server which token it is, and the secret proves that the node has it.

The server stores neither the text nor the secret, but a hash, from which the secret cannot be
found: it has 256 random bits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.daemons.files import write_private
from pliant.protos.daemons.private_paths import read_private
from pliant.protos.identity.errors import JoinTokenError, StoredIdentityError
from pliant.protos.identity.file_lock import lock_for
from pliant.protos.identity.names import check_name

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
_MAX_STORE_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class JoinToken:
    """What the administrator copies to a node.

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
        """Return the token as one line, which can be marked with a double click."""
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


def parse_token(text: str) -> JoinToken:
    """Read a token; white space, as from a line break, and case do not matter.

    Raises:
        JoinTokenError: it is not a token of this version, or was not copied correctly.
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


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What the server keeps of a token until it is used or expires."""

    id: str
    #: SHA-256 of id and secret, in hexadecimal digits.
    hash: str
    #: The name that the node gets; it cannot choose another.
    node: str
    #: The most slots that the node may offer.
    max_slots: int
    #: In seconds since the epoch.
    expires: float


class JoinTokens:
    """The tokens that were made and not used yet, in a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(  # what a token says, by name
        self,
        node: str,
        *,
        max_slots: int,
        lifetime_s: float,
        fingerprints: Sequence[str],
        address: str,
        now: float,
    ) -> JoinToken:
        """Make a token and store what is needed to redeem it.

        Raises:
            IdentityNameError: the name of the node is not usable.
            JoinTokenError: another value is not usable.
            StoredIdentityError, OSError: the file cannot be used.
        """
        check_name("node", node)
        if max_slots < 1:
            raise JoinTokenError(f"slots: expected at least 1, got {max_slots}")
        if not lifetime_s > 0:
            raise JoinTokenError(f"lifetime: expected more than 0 s, got {lifetime_s:g} s")
        token = JoinToken(
            id=secrets.token_hex(_ID_BYTES),
            secret=secrets.token_bytes(_SECRET_BYTES),
            fingerprints=tuple(fingerprints),
            address=address,
        )
        stored = StoredToken(
            token.id, _hash(token.id, token.secret), node, max_slots, now + lifetime_s
        )
        with lock_for(self._path):
            self._write([*self._read(now), stored])
        return token

    def redeem(self, token_id: str, secret: bytes, *, now: float) -> StoredToken:
        """Use a token up, and return what it allows.

        The token is removed from the disk before this returns. If the server crashes before the
        node has its certificate, the administrator makes another token.

        Raises:
            JoinTokenError: there is no such token. It does not say whether the id or the secret is
                wrong, or whether the token was used or has expired.
            StoredIdentityError, OSError: the file cannot be used.
        """
        wanted = _hash(token_id, secret)
        with lock_for(self._path):
            current = self._read(now)
            # Each hash is compared in constant time, and all are, so that the time that this takes
            # says nothing about how much of an id or a secret was right.
            found = [each for each in current if hmac.compare_digest(each.hash, wanted)]
            if not found:
                raise JoinTokenError(
                    "the join token is unknown: it was used, or has expired, or is of another "
                    "cluster; ask the administrator for a new one"
                )
            self._write([each for each in current if each not in found])
        return found[0]

    def pending(self, *, now: float) -> list[StoredToken]:
        """Return the tokens that can still be used."""
        with lock_for(self._path):
            return self._read(now)

    def _read(self, now: float) -> list[StoredToken]:
        """Read the tokens that have not expired."""
        try:
            content = read_private(self._path, max_bytes=_MAX_STORE_BYTES)
        except FileNotFoundError:
            return []
        try:
            stored = [_stored_token(each) for each in json.loads(content)]
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise StoredIdentityError(
                f"{self._path} is damaged ({error}): remove it, and make new tokens"
            ) from None
        return [each for each in stored if now < each.expires]

    def _write(self, tokens: Sequence[StoredToken]) -> None:
        content = json.dumps([asdict(each) for each in tokens], indent=1).encode("ascii")
        write_private(self._path, content)


def _stored_token(value: Any) -> StoredToken:
    texts = [value[name] for name in ("id", "hash", "node")]
    is_valid = all(isinstance(each, str) and each.isascii() for each in texts)
    if not is_valid or type(value["max_slots"]) is not int or type(value["expires"]) is not float:
        raise ValueError("a token has a value of a wrong type")
    return StoredToken(**value)


def _hash(token_id: str, secret: bytes) -> str:
    # The zero byte ends the id, so that different pairs are never joined alike.
    return hashlib.sha256(token_id.encode("utf-8", "replace") + b"\0" + secret).hexdigest()

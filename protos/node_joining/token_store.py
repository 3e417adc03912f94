"""The join tokens that were made, in a file of the server.

The server stores neither the text of a token nor its secret, but a hash of the secret. The secret
has 256 random bits, so it cannot be found from the hash.

A used token stays in the file for a time after it expires, with a fingerprint of the key for which
it was used. If the server's answer to a node gets lost, the node asks again with the same key, and
gets an answer again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.daemons.private_paths import read_private
from pliant.protos.identity.certificate_names import Role, check_name
from pliant.protos.identity.identity_errors import JoinTokenError, StoredIdentityError
from pliant.protos.identity.stored_files import lock_for
from pliant.protos.node_joining.join_token import JoinToken, create_token

#: Its name in the directory of the cluster's identity.
FILE = "join-tokens.json"
MAX_LIFETIME_S = 7 * 86_400.0
#: A token that was used or has expired is remembered for this long after its end, so that the
#: error can say so.
REMEMBERED_S = 86_400.0
_MAX_BYTES = 1 << 22
_NEW = "ask the administrator for a new one (`pliant cluster token`)"


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What the server stores of a join token, with which a host becomes a node of the cluster."""

    id: str
    #: SHA-256 of id and secret, in hexadecimal digits.
    hash: str
    #: The name that the node or login agent gets; it cannot choose another.
    node: str
    #: The most slots that the node may offer; None for any number.
    max_slots: int | None
    #: In seconds since the epoch.
    expires: float
    #: The fingerprint of the key for which it was used; empty if it was not used.
    used_by: str = ""
    #: ``node``, or ``login-agent``.
    role: str = Role.NODE.value

    @property
    def member(self) -> str:
        """Return role and name that the joining host gets, such as ``node n7``, for messages."""
        return f"{self.role} {self.node}"


class TokenStore:
    """The stored join tokens, in a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(  # what a token says, by name
        self,
        node: str,
        *,
        max_slots: int | None,
        lifetime_s: float,
        fingerprints: Sequence[str],
        address: str,
        now: float,
        role: Role = Role.NODE,
    ) -> JoinToken:
        """Create a token for a node, and store its digest and the node's settings.

        Earlier tokens of the same node or login agent cannot be used any more.

        Args:
            node: the name of the node.
            max_slots: the largest number of slots that the node may offer; None for any number.
            lifetime_s: for how many seconds the token can be used.
            fingerprints: fingerprints of the cluster's roots, by which the node verifies the
                server.
            address: the address at which the node reaches the server, as HOST:PORT.
            now: the present time, in seconds since the epoch.
            role: whether the host becomes a node or a login agent.

        Raises:
            IdentityNameError: the name of the node is not usable.
            JoinTokenError: another value is not usable.
            StoredIdentityError, OSError: the file cannot be used.
        """
        check_name(role.value, node)
        if max_slots is not None and max_slots < 1:
            raise JoinTokenError(f"slots: expected at least 1, got {max_slots}")
        if not 0 < lifetime_s <= MAX_LIFETIME_S:
            raise JoinTokenError(
                f"lifetime: expected more than 0 s and at most {MAX_LIFETIME_S:.0f} s (7 days), "
                f"got {lifetime_s:g} s"
            )
        token = create_token(fingerprints, address)
        stored = StoredToken(
            token.id,
            _hash(token.id, token.secret),
            node,
            max_slots,
            now + lifetime_s,
            role=role.value,
        )
        with lock_for(self._path):
            # Also not by the key for which it was used: that key may have been stolen since.
            kept = [each for each in self._read(now) if (each.node, each.role) != (node, role)]
            self._write([*kept, stored])
        return token

    @contextmanager
    def redeem(
        self, token_id: str, secret: bytes, key: str, *, now: float
    ) -> Iterator[StoredToken]:
        """Yield the token that a host presents; mark it as used at the end of the context.

        The token stays unused if the block ends with an error. No other token can be redeemed or
        made inside the block. If the server crashes before the node has its answer, the node can
        redeem the token again, with the same key.

        Args:
            token_id: the id in the token.
            secret: the secret in the token.
            key: a fingerprint of the node's key.
            now: the present time, in seconds since the epoch.

        Raises:
            JoinTokenError: there is no such token, or it was used for another key, or has expired.
                The message is the same for a wrong id and a wrong secret.
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
                    f"the join token is unknown: it was withdrawn or replaced, or expired more "
                    f"than a day ago, or is of another cluster; {_NEW}"
                )
            (token,) = found
            if token.used_by and token.used_by != key:
                raise JoinTokenError(f"the join token of {token.member} was used; {_NEW}")
            if now >= token.expires:
                raise JoinTokenError(
                    f"the join token of {token.member} expired {now - token.expires:.0f} s ago; "
                    f"{_NEW}"
                )
            yield token
            if not token.used_by:
                used = replace(token, used_by=key)
                self._write([used if each is token else each for each in current])

    def pending(self, *, now: float) -> list[StoredToken]:
        """Return the tokens that have neither been used nor expired."""
        with lock_for(self._path):
            current = self._read(now)
        return [each for each in current if not each.used_by and now < each.expires]

    def withdraw(self, which: str, *, now: float) -> list[StoredToken]:
        """Delete unused join tokens, so that they cannot be used any more; return them.

        Args:
            which: the id of a token, or the name of a node.
            now: the present time, in seconds since the epoch.

        Raises:
            JoinTokenError: there is no such unused token.
            StoredIdentityError, OSError: the file cannot be used.
        """
        with lock_for(self._path):
            current = self._read(now)
            usable = [each for each in current if not each.used_by and now < each.expires]
            found = [each for each in usable if which in (each.id, each.node)]
            if not found:
                known = ", ".join(f"{each.id} ({each.node})" for each in usable) or "none"
                raise JoinTokenError(f"no open join token {which!r:.80}; there are: {known}")
            self._write([each for each in current if each not in found])
        return found

    def forget(self, node: str, *, now: float, role: Role = Role.NODE) -> None:
        """Delete all tokens of a node, used ones included, so that none can be redeemed again."""
        with lock_for(self._path):
            current = self._read(now)
            left = [each for each in current if (each.node, each.role) != (node, role)]
            if left != current:
                self._write(left)

    def withdraw_all(self, *, now: float) -> list[StoredToken]:
        """Delete all unused tokens; return those of them that had not expired."""
        with lock_for(self._path):
            current = self._read(now)
            self._write([each for each in current if each.used_by])
        return [each for each in current if not each.used_by and now < each.expires]

    def _read(self, now: float) -> list[StoredToken]:
        """Read the stored tokens, but none that expired ``REMEMBERED_S`` seconds ago or before."""
        try:
            content = read_private(self._path, max_bytes=_MAX_BYTES)
        except FileNotFoundError:
            return []
        try:
            stored = [_stored_token(each) for each in json.loads(content)]
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise StoredIdentityError(
                f"{self._path} is damaged ({error}): remove it, and make new tokens"
            ) from None
        return [each for each in stored if now < each.expires + REMEMBERED_S]

    def _write(self, tokens: Sequence[StoredToken]) -> None:
        content = json.dumps([asdict(each) for each in tokens], indent=1).encode("ascii")
        write_private(self._path, content)


def _stored_token(value: Any) -> StoredToken:
    texts = [value[name] for name in ("id", "hash", "node", "used_by")]
    slots, expires = value["max_slots"], value["expires"]
    is_valid = (
        all(isinstance(each, str) and each.isascii() for each in texts)
        and (slots is None or type(slots) is int)
        and type(expires) is float
        and math.isfinite(expires)
        and value.get("role", Role.NODE) in (Role.NODE, Role.LOGIN_AGENT)
    )
    if not is_valid:
        raise ValueError("a token has a value of a wrong type")
    return StoredToken(**value)


def _hash(token_id: str, secret: bytes) -> str:
    # The zero byte ends the id, so that different pairs are never joined alike.
    return hashlib.sha256(token_id.encode("utf-8", "replace") + b"\0" + secret).hexdigest()

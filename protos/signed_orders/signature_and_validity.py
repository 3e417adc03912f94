"""Common parts of signed orders: addressee, user, validity, and their checks.

An order is transmitted as the bytes that were signed, followed by the signature. These bytes are
unambiguous: they begin with the kind of the order and a version, which fix the fields, their order
and their types. A number has eight bytes, and a text or list begins with its length. The reader
refuses bytes that follow the last field, and anything that is not written as ``encode`` writes it.
So two different orders never have the same bytes, and one order has only one form.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from pliant.protos.identity.certificate_names import check_name
from pliant.protos.identity.identity_errors import IdentityError, IdentityNameError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

NONCE_BYTES = 16
SIGNATURE_BYTES = 64
MAX_ORDER_BYTES = 1 << 14
#: The longest that an order may be valid. Nodes keep the nonces of this time.
MAX_LIFETIME_S = 300
#: How far the clocks of server and node may differ.
MAX_CLOCK_SKEW_S = 60
#: Accounts below this number belong to the system.
MIN_USER_ID = 1000
MAX_ID = (1 << 32) - 2  # the highest number means "no change" to setuid
_MAX_NUMBER = (1 << 63) - 1


class OrderRefusal(StrEnum):
    """The reasons for which a node refuses an order of the server, as codes for programs."""

    FORMAT = "format"
    VERSION = "version"
    SIGNATURE = "signature"
    CLUSTER = "cluster"
    NODE = "node"
    GENERATION = "generation"
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    USER = "user"
    GROUP = "group"
    DIGEST = "digest"


class SignedOrderError(IdentityError):
    """An order of the server is refused; the attribute ``refusal`` is the reason as a code."""

    #: The kind of the order, for messages.
    KIND: ClassVar[str] = "signed order"

    def __init__(self, refusal: OrderRefusal, message: str) -> None:
        super().__init__(f"{self.KIND} refused: {message}")
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedOrder:
    """The fields that all kinds of signed orders have.

    Raises:
        SignedOrderError: a field has a value that no order may have.
    """

    #: Raised for orders of this kind.
    ERROR: ClassVar[type[SignedOrderError]] = SignedOrderError

    cluster: str
    node: str
    generation: int
    job: int
    uid: int
    gid: int
    #: When it was signed and until when it may be carried out, in seconds since the epoch.
    issued: int
    expires: int
    #: Random, so that no two orders are alike and none is carried out twice.
    nonce: bytes

    def __post_init__(self) -> None:
        try:
            check_name("cluster", self.cluster)
            check_name("node", self.node)
        except IdentityNameError as error:
            raise self.ERROR(OrderRefusal.FORMAT, str(error)) from None
        for name in ("generation", "job", "issued", "expires"):
            self.check_number(name, getattr(self, name))
        for name in ("uid", "gid"):
            self.check_number(name, getattr(self, name), MAX_ID)
        if len(self.nonce) != NONCE_BYTES:
            raise self.ERROR(OrderRefusal.FORMAT, "the nonce has a wrong length")
        if not 0 < self.expires - self.issued <= MAX_LIFETIME_S:
            lifetime = self.expires - self.issued
            text = f"expected a lifetime of 1 to {MAX_LIFETIME_S} s, got {lifetime} s"
            raise self.ERROR(OrderRefusal.FORMAT, text)

    def check_number(self, name: str, number: int, largest: int = _MAX_NUMBER) -> None:
        """Raise the error of this kind of order if ``number`` is negative or above ``largest``.

        Args:
            name: the name of the field, for the error.
            number: the value.
            largest: the largest value that is permitted.
        """
        if not 0 <= number <= largest:
            raise self.ERROR(OrderRefusal.FORMAT, f"{name} {number} is out of range")

    def encode(self) -> bytes:
        """Return the bytes that are signed."""
        raise NotImplementedError

    @property
    def keep_nonce_until(self) -> float:
        """Return until when the nonce must be stored, in seconds since the epoch.

        By then the order has expired, even by the slowest clock that is tolerated.
        """
        return float(self.expires + MAX_CLOCK_SKEW_S)

    def check(  # what the node knows, by name
        self,
        *,
        cluster: str,
        node: str,
        now: float,
        min_generation: int = 0,
        allowed_system_users: Collection[int] = (),
    ) -> None:
        """Check that a node may carry out this order now.

        Args:
            cluster: the cluster of the node.
            node: the name of the node.
            now: the present time, in seconds since the epoch.
            min_generation: orders of a server with a lower generation (count of starts) are
                refused.
            allowed_system_users: users below `MIN_USER_ID`, such as root, who may have jobs here.

        Raises:
            SignedOrderError: the order is not carried out; ``refusal`` says why.
        """
        if self.cluster != cluster:
            message = f"it is for cluster {self.cluster}, not {cluster}"
            raise self.ERROR(OrderRefusal.CLUSTER, message)
        if self.node != node:
            raise self.ERROR(OrderRefusal.NODE, f"it is for node {self.node}, not {node}")
        if self.generation < min_generation:
            message = (
                f"generation {self.generation} of the server has ended, {min_generation} is known"
            )
            raise self.ERROR(OrderRefusal.GENERATION, message)
        self._check_time(now)
        self._check_user(allowed_system_users)

    def _check_time(self, now: float) -> None:
        early, late = self.issued - now, now - self.expires
        if early > MAX_CLOCK_SKEW_S:
            message = (
                f"it is not valid yet: the clock of this host is {early:.0f} s behind the "
                "server's; set both with NTP"
            )
            raise self.ERROR(OrderRefusal.NOT_YET_VALID, message)
        if late >= MAX_CLOCK_SKEW_S:
            message = (
                f"it expired {late:.0f} s ago: it is old, or the clock of this host is ahead of "
                "the server's (set both with NTP)"
            )
            raise self.ERROR(OrderRefusal.EXPIRED, message)

    def _check_user(self, allowed: Collection[int]) -> None:
        if self.uid < MIN_USER_ID and self.uid not in allowed:
            who = "root" if self.uid == 0 else f"the system account {self.uid}"
            raise self.ERROR(OrderRefusal.USER, f"jobs of {who} are not allowed on this node")
        if self.uid != 0 and self.gid == 0:
            message = "jobs in root's group are not allowed on this node"
            raise self.ERROR(OrderRefusal.GROUP, message)


def new_nonce() -> bytes:
    """Return random bytes that make an order unique, so that no order is carried out twice."""
    return secrets.token_bytes(NONCE_BYTES)


def sign(order: SignedOrder, key: Ed25519PrivateKey) -> bytes:
    """Return an order with its signature, as it is sent to the node."""
    text = order.encode()
    return text + key.sign(text)


def verify_signature(signed: bytes, key: Ed25519PublicKey, error: type[SignedOrderError]) -> bytes:
    """Verify the signature of an order, and return the signed bytes without it.

    Args:
        signed: the order with its signature, as `sign` returns it.
        key: the server's public key.
        error: the error class of the expected kind of order.

    Raises:
        SignedOrderError: the bytes have a wrong length, or the server has not signed them.
    """
    from cryptography.exceptions import InvalidSignature

    if not SIGNATURE_BYTES < len(signed) <= MAX_ORDER_BYTES:
        raise error(OrderRefusal.FORMAT, f"it has {len(signed)} bytes")
    text, signature = signed[:-SIGNATURE_BYTES], signed[-SIGNATURE_BYTES:]
    try:
        key.verify(signature, text)
    except InvalidSignature:
        message = "its signature is wrong: the server of this cluster has not signed it"
        raise error(OrderRefusal.SIGNATURE, message) from None
    return text


def check_head(text: bytes, prefix: bytes, version: int, error: type[SignedOrderError]) -> int:
    """Check the kind and the version of an order; return where its first field begins.

    Args:
        text: the bytes of the order.
        prefix: the bytes with which all orders of the expected kind begin.
        version: the expected version.
        error: the error class of this kind of order.

    Raises:
        SignedOrderError: the order is of another kind or version.
    """
    head = make_head(prefix, version)
    if text.startswith(head):
        return len(head)
    found, end, _ = text.partition(b"\0")
    number = found.removeprefix(prefix)
    if not (end and found.startswith(prefix) and number.isdigit()):
        raise error(OrderRefusal.FORMAT, "it does not begin like an order of this kind")
    raise error(
        OrderRefusal.VERSION,
        f"it has version {number[:9].decode('ascii')}, and version {version} is expected: run "
        "the same version of Pliant on server and node, and restart controller and root helper",
    )


def make_head(prefix: bytes, version: int) -> bytes:
    """Return the first bytes of an order: ``prefix``, which names its kind, and the version."""
    return b"%b%d\0" % (prefix, version)


def with_length(text: bytes) -> bytes:
    """Return a text with its length in front, in the form in which orders contain texts."""
    return struct.pack(">Q", len(text)) + text


def read_with_length(text: bytes, at: int) -> tuple[bytes, int]:
    """Return the text that begins at the offset ``at``, and the offset of the next field.

    Raises:
        struct.error: the text is cut off.
    """
    (length,) = struct.unpack_from(">Q", text, at)
    start, end = at + 8, at + 8 + length
    if end > len(text):
        raise struct.error
    return text[start:end], end

"""Orders to start processes as a user, signed by the server and verified on the node.

TLS proves to a controller that an order came from the server. It proves nothing to the process that
switches to the user: that process would have to believe the controller, which any defect of the
controller or a stolen connection could use. So the server signs the order itself.

An order is transmitted as the bytes that were signed, followed by the signature. These bytes are
unambiguous: they begin with a version, which fixes the fields, their order and their types. A
number has eight bytes, and a text or list begins with its length. The reader refuses bytes that
follow the last field, and anything that is not written as `LaunchOrder.encode` writes it. So two
different orders never have the same bytes, and one order has only one form.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pliant.protos.identity.identity_errors import IdentityError, IdentityNameError
from pliant.protos.identity.names import check_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

#: Since version 2, the digest covers memory and devices.
VERSION = 2
_PREFIX = b"pliant launch order "
_HEAD = b"%b%d\0" % (_PREFIX, VERSION)
_DIGEST_HEAD = b"pliant launch digest %d\0" % VERSION
NONCE_BYTES = 16
DIGEST_BYTES = 32
SIGNATURE_BYTES = 64
MAX_GROUPS = 1024
MAX_ORDER_BYTES = 1 << 14
#: The longest that an order may be valid. Nodes keep the nonces of this time.
MAX_LIFETIME_S = 300
#: How far the clocks of server and node may differ.
MAX_CLOCK_SKEW_S = 60
#: Accounts below this number belong to the system.
MIN_USER_ID = 1000
_MAX_ID = (1 << 32) - 2  # the highest number means "no change" to setuid
_MAX_NUMBER = (1 << 63) - 1


class OrderRefusal(StrEnum):
    """The reasons for which a launch order is refused."""

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


class LaunchOrderError(IdentityError):
    """A launch order is refused; ``refusal`` says why, for programs."""

    def __init__(self, refusal: OrderRefusal, message: str) -> None:
        super().__init__(f"launch order refused: {message}")
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """What the server orders a node to start, and as which user.

    Raises:
        LaunchOrderError: a field has a value that no order may have.
    """

    cluster: str
    node: str
    generation: int
    job: int
    run: int
    epoch: int
    uid: int
    gid: int
    #: The supplementary groups, ascending.
    groups: tuple[int, ...]
    #: See `digest_launch`.
    digest: bytes
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
            raise LaunchOrderError(OrderRefusal.FORMAT, str(error)) from None
        for name in ("generation", "job", "run", "epoch", "issued", "expires"):
            _check_number(name, getattr(self, name), _MAX_NUMBER)
        for number in (self.uid, self.gid, *self.groups):
            _check_number("user or group", number, _MAX_ID)
        if list(self.groups) != sorted(set(self.groups)) or len(self.groups) > MAX_GROUPS:
            text = f"groups: expected at most {MAX_GROUPS}, ascending, each once"
            raise LaunchOrderError(OrderRefusal.FORMAT, text)
        if len(self.digest) != DIGEST_BYTES or len(self.nonce) != NONCE_BYTES:
            raise LaunchOrderError(OrderRefusal.FORMAT, "digest or nonce has a wrong length")
        if not 0 < self.expires - self.issued <= MAX_LIFETIME_S:
            lifetime = self.expires - self.issued
            text = f"expected a lifetime of 1 to {MAX_LIFETIME_S} s, got {lifetime} s"
            raise LaunchOrderError(OrderRefusal.FORMAT, text)

    def encode(self) -> bytes:
        """Return the bytes that are signed."""
        numbers = (
            *(self.generation, self.job, self.run, self.epoch),
            *(self.uid, self.gid, self.issued, self.expires),
        )
        return b"".join(
            [
                _HEAD,
                _with_length(self.cluster.encode("ascii")),
                _with_length(self.node.encode("ascii")),
                struct.pack(">8Q", *numbers),
                struct.pack(f">Q{len(self.groups)}Q", len(self.groups), *self.groups),
                self.digest,
                self.nonce,
            ]
        )

    @property
    def keep_nonce_until(self) -> float:
        """Return until when the nonce must be remembered, in seconds since the epoch.

        By then the order has expired even by the slowest clock that is tolerated.
        """
        return float(self.expires + MAX_CLOCK_SKEW_S)


def new_nonce() -> bytes:
    """Return a nonce for an order."""
    return secrets.token_bytes(NONCE_BYTES)


def digest_launch(
    arguments: Sequence[str], environment: Mapping[str, str], directory: str
) -> bytes:
    """Return a digest of the arguments, environment and directory of a process.

    Each text begins with its length and each list with its count, so that different launches
    never give the same bytes. The order of the variables does not matter.
    """
    variables = sorted((_to_bytes(k), _to_bytes(v)) for k, v in environment.items())
    parts = [_to_bytes(directory), *map(_to_bytes, arguments)]
    hashed = hashlib.sha256(_DIGEST_HEAD)
    hashed.update(struct.pack(">QQ", len(parts), len(variables)))
    for part in parts:
        hashed.update(_with_length(part))
    for name, value in variables:
        hashed.update(_with_length(name) + _with_length(value))
    return hashed.digest()


def sign(order: LaunchOrder, key: Ed25519PrivateKey) -> bytes:
    """Return an order with its signature, as it is sent to the node."""
    text = order.encode()
    return text + key.sign(text)


def verify(  # what the node knows, by name
    signed: bytes,
    key: Ed25519PublicKey,
    *,
    cluster: str,
    node: str,
    now: float,
    min_generation: int = 0,
    allowed_system_users: Collection[int] = (),
) -> LaunchOrder:
    """Check the signature and the fields of an order, and return the order.

    The caller must also check its nonce (`NonceWindow.use`) and its digest (`check_digest`).

    Args:
        signed: what `sign` returned.
        key: the server's public key.
        cluster: the cluster of this node.
        node: the name of this node.
        now: in seconds since the epoch.
        min_generation: of the server; orders of earlier generations are refused.
        allowed_system_users: users below `MIN_USER_ID`, such as root, whose jobs may run here.

    Raises:
        LaunchOrderError: it is not carried out; ``refusal`` says why.
    """
    from cryptography.exceptions import InvalidSignature

    if not SIGNATURE_BYTES < len(signed) <= MAX_ORDER_BYTES:
        raise LaunchOrderError(OrderRefusal.FORMAT, f"it has {len(signed)} bytes")
    text, signature = signed[:-SIGNATURE_BYTES], signed[-SIGNATURE_BYTES:]
    try:
        key.verify(signature, text)
    except InvalidSignature:
        message = "its signature is wrong: the server of this cluster has not signed it"
        raise LaunchOrderError(OrderRefusal.SIGNATURE, message) from None
    order = decode(text)
    if order.cluster != cluster:
        message = f"it is for cluster {order.cluster}, not {cluster}"
        raise LaunchOrderError(OrderRefusal.CLUSTER, message)
    if order.node != node:
        raise LaunchOrderError(OrderRefusal.NODE, f"it is for node {order.node}, not {node}")
    if order.generation < min_generation:
        message = (
            f"generation {order.generation} of the server has ended, {min_generation} is known"
        )
        raise LaunchOrderError(OrderRefusal.GENERATION, message)
    _check_time(order, now)
    _check_user(order, allowed_system_users)
    return order


def check_digest(order: LaunchOrder, digest: bytes) -> None:
    """Check that a process to be started is the one that was ordered.

    Raises:
        LaunchOrderError: arguments, environment or directory differ.
    """
    if order.digest != digest:
        message = "arguments, environment or directory differ from what was signed"
        raise LaunchOrderError(OrderRefusal.DIGEST, message)


def decode(text: bytes) -> LaunchOrder:
    """Read the bytes that `LaunchOrder.encode` returned.

    Raises:
        LaunchOrderError: they are not an order of this version.
    """
    if not text.startswith(_HEAD):
        prefix, end, _ = text.partition(b"\0")
        number = prefix.removeprefix(_PREFIX)
        if not (end and prefix.startswith(_PREFIX) and number.isdigit()):
            raise LaunchOrderError(OrderRefusal.FORMAT, "it does not begin like an order")
        raise LaunchOrderError(
            OrderRefusal.VERSION,
            f"it has version {number[:9].decode('ascii')}, and version {VERSION} is expected: run "
            "the same version of Pliant on server and node, and restart controller and root helper",
        )
    try:
        cluster, at = _read_text(text, len(_HEAD))
        node, at = _read_text(text, at)
        generation, job, run, epoch, uid, gid, issued, expires = struct.unpack_from(">8Q", text, at)
        (count,) = struct.unpack_from(">Q", text, at + 64)
        if count > MAX_GROUPS:
            raise LaunchOrderError(OrderRefusal.FORMAT, f"it has more than {MAX_GROUPS} groups")
        groups = struct.unpack_from(f">{count}Q", text, at + 72)
        at += 72 + 8 * count
        end = at + DIGEST_BYTES + NONCE_BYTES
        if len(text) != end:
            raise LaunchOrderError(OrderRefusal.FORMAT, "it is too short or too long")
    except (struct.error, UnicodeDecodeError):
        raise LaunchOrderError(OrderRefusal.FORMAT, "it is cut off or damaged") from None
    return LaunchOrder(
        cluster=cluster,
        node=node,
        generation=generation,
        job=job,
        run=run,
        epoch=epoch,
        uid=uid,
        gid=gid,
        groups=groups,
        digest=text[at : at + DIGEST_BYTES],
        issued=issued,
        expires=expires,
        nonce=text[at + DIGEST_BYTES : end],
    )


def _check_time(order: LaunchOrder, now: float) -> None:
    early, late = order.issued - now, now - order.expires
    if early > MAX_CLOCK_SKEW_S:
        message = (
            f"it is not valid yet: the clock of this host is {early:.0f} s behind the server's; "
            "set both with NTP"
        )
        raise LaunchOrderError(OrderRefusal.NOT_YET_VALID, message)
    if late >= MAX_CLOCK_SKEW_S:
        message = (
            f"it expired {late:.0f} s ago: it is old, or the clock of this host is ahead of the "
            "server's (set both with NTP)"
        )
        raise LaunchOrderError(OrderRefusal.EXPIRED, message)


def _check_user(order: LaunchOrder, allowed: Collection[int]) -> None:
    if order.uid < MIN_USER_ID and order.uid not in allowed:
        who = "root" if order.uid == 0 else f"the system account {order.uid}"
        raise LaunchOrderError(OrderRefusal.USER, f"jobs of {who} are not allowed on this node")
    if order.uid != 0 and 0 in (order.gid, *order.groups):
        message = "jobs in root's group are not allowed on this node"
        raise LaunchOrderError(OrderRefusal.GROUP, message)


def _check_number(name: str, number: int, largest: int) -> None:
    if not 0 <= number <= largest:
        raise LaunchOrderError(OrderRefusal.FORMAT, f"{name} {number} is out of range")


def _to_bytes(text: str) -> bytes:
    """Return the bytes of a text, whatever encoding the locale of this process names."""
    return text.encode("utf-8", "surrogateescape")


def _with_length(text: bytes) -> bytes:
    return struct.pack(">Q", len(text)) + text


def _read_text(text: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">Q", text, at)
    start, end = at + 8, at + 8 + length
    if end > len(text):
        raise struct.error
    return text[start:end].decode("ascii"), end

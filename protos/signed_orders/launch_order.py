"""Orders to start processes as a user, signed by the server and verified on the node.

TLS proves to a controller that an order came from the server. It proves nothing to the root helper,
the process that switches to the user: it would have to trust the controller, and an attacker could
use a defect of the controller or a stolen connection. So the server signs the order itself. The
module `signature_and_validity` describes the form of the bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pliant.protos.signed_orders.signature_and_validity import (
    MAX_ID,
    NONCE_BYTES,
    OrderRefusal,
    SignedOrder,
    SignedOrderError,
    check_head,
    make_head,
    read_with_length,
    verify_signature,
    with_length,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

#: Since version 2, the digest covers memory and devices.
VERSION = 2
_PREFIX = b"pliant launch order "
_DIGEST_HEAD = b"pliant launch digest %d\0" % VERSION
DIGEST_BYTES = 32
MAX_GROUPS = 1024


class LaunchOrderError(SignedOrderError):
    """A launch order is refused; the attribute ``refusal`` is the reason as a code."""

    KIND = "launch order"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder(SignedOrder):
    """A signed order to a node to start processes of a job.

    It has the user and groups of the processes, and a digest of what to start (`digest_launch`).

    Raises:
        LaunchOrderError: a field has a value that no order may have.
    """

    ERROR: ClassVar[type[SignedOrderError]] = LaunchOrderError

    run: int
    epoch: int
    #: The supplementary groups, ascending.
    groups: tuple[int, ...]
    #: See `digest_launch`.
    digest: bytes

    def __post_init__(self) -> None:
        SignedOrder.__post_init__(self)
        self.check_number("run", self.run)
        self.check_number("epoch", self.epoch)
        for number in self.groups:
            self.check_number("group", number, MAX_ID)
        if list(self.groups) != sorted(set(self.groups)) or len(self.groups) > MAX_GROUPS:
            text = f"groups: expected at most {MAX_GROUPS}, ascending, each once"
            raise LaunchOrderError(OrderRefusal.FORMAT, text)
        if len(self.digest) != DIGEST_BYTES:
            raise LaunchOrderError(OrderRefusal.FORMAT, "the digest has a wrong length")

    def encode(self) -> bytes:
        """Return the bytes that are signed."""
        numbers = (
            *(self.generation, self.job, self.run, self.epoch),
            *(self.uid, self.gid, self.issued, self.expires),
        )
        return b"".join(
            [
                make_head(_PREFIX, VERSION),
                with_length(self.cluster.encode("ascii")),
                with_length(self.node.encode("ascii")),
                struct.pack(">8Q", *numbers),
                struct.pack(f">Q{len(self.groups)}Q", len(self.groups), *self.groups),
                self.digest,
                self.nonce,
            ]
        )


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
        hashed.update(with_length(part))
    for name, value in variables:
        hashed.update(with_length(name) + with_length(value))
    return hashed.digest()


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
        signed: the order with its signature, as `sign` returns it.
        key: the server's public key.
        cluster: the cluster of this node.
        node: the name of this node.
        now: the present time, in seconds since the epoch.
        min_generation: orders of a server with a lower generation (count of starts) are refused.
        allowed_system_users: users below `MIN_USER_ID`, such as root, whose jobs may run here.

    Raises:
        LaunchOrderError: the order is not carried out; ``refusal`` says why.
    """
    order = decode(verify_signature(signed, key, LaunchOrderError))
    order.check(
        cluster=cluster,
        node=node,
        now=now,
        min_generation=min_generation,
        allowed_system_users=allowed_system_users,
    )
    if order.uid != 0 and 0 in order.groups:
        message = "jobs in root's group are not allowed on this node"
        raise LaunchOrderError(OrderRefusal.GROUP, message)
    return order


def check_digest(order: LaunchOrder, digest: bytes) -> None:
    """Raise an error if a process to be started differs from the one that its order permits.

    ``digest`` is the digest of this process.

    Raises:
        LaunchOrderError: arguments, environment or directory differ.
    """
    if order.digest != digest:
        message = "arguments, environment or directory differ from what was signed"
        raise LaunchOrderError(OrderRefusal.DIGEST, message)


def decode(text: bytes) -> LaunchOrder:
    """Read the bytes that `LaunchOrder.encode` returned.

    Raises:
        LaunchOrderError: the bytes are not an order of this version.
    """
    at = check_head(text, _PREFIX, VERSION, LaunchOrderError)
    try:
        cluster, at = read_with_length(text, at)
        node, at = read_with_length(text, at)
        names = cluster.decode("ascii"), node.decode("ascii")
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
        cluster=names[0],
        node=names[1],
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


def _to_bytes(text: str) -> bytes:
    """Return the bytes of a text, independent of the locale of this process."""
    return text.encode("utf-8", "surrogateescape")

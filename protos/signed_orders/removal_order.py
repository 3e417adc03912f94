"""Orders to remove the checkpoints of a job that has ended, with the rights of its user.

The server cannot remove files of other users. An order names one folder, whose name contains the
number of the job. Its first bytes differ from those of a launch order, so neither kind of order can
be mistaken for the other.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from pliant.protos.signed_orders.signature_and_validity import (
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

VERSION = 1
_PREFIX = b"pliant removal order "
_NUMBERS = struct.Struct(">6Q")
#: The name of the folder of a job: short name of the cluster, number of the job.
_FOLDER = re.compile(r"[0-9A-Za-z_]{1,16}\.j([0-9]{1,19})", re.ASCII)


class RemovalOrderError(SignedOrderError):
    """An order to remove checkpoints is refused; ``refusal`` is the reason as a code."""

    KIND = "removal order"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalOrder(SignedOrder):
    """A signed order to a node to remove a job's folder of checkpoints, with the rights of a user.

    Raises:
        RemovalOrderError: a field has a value that no order may have.
    """

    ERROR: ClassVar[type[SignedOrderError]] = RemovalOrderError

    #: Absolute path of the folder.
    folder: str

    def __post_init__(self) -> None:
        SignedOrder.__post_init__(self)
        path = PurePosixPath(self.folder)
        name = _FOLDER.fullmatch(path.name)
        is_plain = path.is_absolute() and str(path) == self.folder
        if not is_plain or "\0" in self.folder or name is None or int(name[1]) != self.job:
            text = f"{self.folder!r} is not the path of the checkpoints of job {self.job}"
            raise RemovalOrderError(OrderRefusal.FORMAT, text)

    def encode(self) -> bytes:
        """Return the bytes that are signed."""
        return b"".join(
            [
                make_head(_PREFIX, VERSION),
                with_length(self.cluster.encode("ascii")),
                with_length(self.node.encode("ascii")),
                with_length(os.fsencode(self.folder)),
                _NUMBERS.pack(
                    self.generation, self.job, self.uid, self.gid, self.issued, self.expires
                ),
                self.nonce,
            ]
        )


def verify_removal(  # what the node knows, by name
    signed: bytes,
    key: Ed25519PublicKey,
    *,
    cluster: str,
    node: str,
    now: float,
    min_generation: int = 0,
    allowed_system_users: Collection[int] = (),
) -> RemovalOrder:
    """Check a signed order to remove checkpoints, and return it. The caller then checks its nonce.

    The arguments are those of `launch_order.verify`.

    Raises:
        RemovalOrderError: the order is not carried out; ``refusal`` says why.
    """
    order = decode_removal(verify_signature(signed, key, RemovalOrderError))
    order.check(
        cluster=cluster,
        node=node,
        now=now,
        min_generation=min_generation,
        allowed_system_users=allowed_system_users,
    )
    return order


def decode_removal(text: bytes) -> RemovalOrder:
    """Read the bytes that `RemovalOrder.encode` returned.

    Raises:
        RemovalOrderError: the bytes are not an order of this version.
    """
    at = check_head(text, _PREFIX, VERSION, RemovalOrderError)
    try:
        cluster, at = read_with_length(text, at)
        node, at = read_with_length(text, at)
        folder, at = read_with_length(text, at)
        generation, job, uid, gid, issued, expires = _NUMBERS.unpack_from(text, at)
        names = cluster.decode("ascii"), node.decode("ascii")
    except (struct.error, UnicodeDecodeError):
        raise RemovalOrderError(OrderRefusal.FORMAT, "it is cut off or damaged") from None
    at += _NUMBERS.size
    if len(text) != at + NONCE_BYTES:
        raise RemovalOrderError(OrderRefusal.FORMAT, "it is too short or too long")
    return RemovalOrder(
        cluster=names[0],
        node=names[1],
        folder=os.fsdecode(folder),
        generation=generation,
        job=job,
        uid=uid,
        gid=gid,
        issued=issued,
        expires=expires,
        nonce=text[at:],
    )

"""Sign orders that the root helpers of nodes carry out with the rights of the users of jobs.

An order is signed when it is sent, because it is valid for a few minutes. A node verifies it and
uses it once (`pliant.protos.signed_orders`).
"""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.protos.identity.cluster_files import ORDER_KEY, load_identity, load_order_key
from pliant.protos.signed_orders.launch_content import LaunchContent
from pliant.protos.signed_orders.launch_order import LaunchOrder
from pliant.protos.signed_orders.removal_order import RemovalOrder
from pliant.protos.signed_orders.signature_and_validity import new_nonce, sign

#: Seconds for which an order may be carried out.
LIFETIME_S = 240


class OrderSigner:
    """Signs the orders to nodes to start processes. It uses the private key of the cluster."""

    def __init__(
        self,
        cluster: str,
        key: Ed25519PrivateKey,
        generation: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._key, self._generation = cluster, key, generation
        self._clock = clock

    def sign(self, order: node_pb2.StartWorld, node: NodeName, uid: int) -> bool:
        """Sign the order for a node; the order must not change afterwards.

        Args:
            order: the order, complete except for the signature.
            node: the node that gets the order.
            uid: the user id of the job's user.

        Returns:
            Whether the order was signed; False if the user has no account on this host.
        """
        try:
            gid = pwd.getpwuid(uid).pw_gid
        except KeyError:
            return False
        now = int(self._clock())
        content = LaunchContent.from_order(order)
        order.signed_order = sign(
            LaunchOrder(
                cluster=self._cluster,
                node=node,
                generation=self._generation,
                job=order.job,
                run=order.run,
                epoch=order.epoch,
                uid=uid,
                gid=gid,
                groups=(),  # the node looks them up
                digest=content.digest(),
                issued=now,
                expires=now + LIFETIME_S,
                nonce=new_nonce(),
            ),
            self._key,
        )
        return True

    def sign_removal(self, node: NodeName, job: int, uid: int, folder: Path) -> bytes | None:
        """Return the signed order to remove the checkpoints of a job.

        Args:
            node: the node that gets the order.
            job: the job, which has ended.
            uid: the user id of the job's user.
            folder: the folder of the job's checkpoints.

        Returns:
            The order; None if the user has no account on this host.
        """
        try:
            gid = pwd.getpwuid(uid).pw_gid
        except KeyError:
            return None
        now = int(self._clock())
        order = RemovalOrder(
            cluster=self._cluster,
            node=node,
            folder=str(folder),
            generation=self._generation,
            job=job,
            uid=uid,
            gid=gid,
            issued=now,
            expires=now + LIFETIME_S,
            nonce=new_nonce(),
        )
        return sign(order, self._key)


def load_signer(directory: Path, generation: int) -> OrderSigner | None:
    """Return the signer of orders; None if the cluster has no identity.

    Raises:
        IdentityError, OSError: the identity is damaged, or others could change it.
    """
    if not (directory / ORDER_KEY).exists():
        return None
    identity = load_identity(directory)
    return OrderSigner(identity.cluster, load_order_key(directory), generation)

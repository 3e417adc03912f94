"""Have nodes remove the checkpoints of users' jobs that have ended.

The server has no rights on these folders. It signs an order for a node that has a root helper and
shares the folder of checkpoints. The helper removes the folder of the job with the rights of its
user. An order may get lost together with its stream. Then another node gets one, or the same node
when it registers again. After a restart, the server finds the folders that are left.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.core.values.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.protos.sanitize_text import sanitize_text
from pliant.server.execution.connections import Connections

if TYPE_CHECKING:  # a server for one host needs no certificates, which take long to import
    from pliant.server.execution.launch_signing import OrderSigner

log = logging.getLogger(__name__)

#: Orders that a node has at once. A controller carries out as many, and an order that waits there
#: for the removal of large folders would expire.
MAX_AT_NODE = 2
_MAX_TEXT = 300


class CheckpointRemovals:
    """The folders that are to be removed. Every method may be called from any thread.

    A thread looks up users and sends the orders, because a user database may answer slowly.
    """

    def __init__(
        self,
        connections: Connections,
        signer: OrderSigner | None,
        path_of: Callable[[int], Path],
        uid_of: Callable[[JobId], int | None],
    ) -> None:
        """Prepare to send orders.

        Args:
            connections: the connections to the nodes.
            signer: the signer of orders; None if the cluster has no identity.
            path_of: returns the folder of a job.
            uid_of: returns the user of a job, None if the job is unknown.
        """
        self._connections, self._signer = connections, signer
        self._path_of, self._uid_of = path_of, uid_of
        self._lock = threading.Lock()
        #: The jobs for which no node has an order, in the order in which they ended.
        self._waiting: dict[JobId, None] = {}
        #: By job, the node that has the order.
        self._sent: dict[JobId, NodeName] = {}
        #: Nodes that can remove folders of users. The first one gets the next order.
        self._nodes: list[NodeName] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="removals")

    def stop(self) -> None:
        """Send no more orders. The next server finds the folders that are left."""
        self._worker.shutdown(cancel_futures=True)

    def add(self, job: JobId) -> None:
        """Have the folder of a job that has ended removed."""
        with self._lock:
            self._sent.pop(job, None)
            self._waiting[job] = None
        self._wake()

    def on_node(self, node: NodeName, *, is_able: bool) -> None:
        """Note whether a node that has registered can remove folders of users."""
        with self._lock:
            self._forget(node)
            if is_able:
                self._nodes.append(node)
        self._wake()

    def on_node_gone(self, node: NodeName) -> None:
        """Give the orders of a node whose stream has ended to other nodes."""
        self.on_node(node, is_able=False)

    def on_result(self, node: NodeName, result: node_pb2.CheckpointsRemoved) -> None:
        """Handle the answer of a node; an answer of another node is ignored."""
        job = JobId(result.job)
        with self._lock:
            if self._sent.get(job) != node:
                return
            del self._sent[job]
        self._wake()
        if result.problem:
            self._warn(job, f"node {node}: {sanitize_text(result.problem)[:_MAX_TEXT]}")

    def _forget(self, node: NodeName) -> None:
        self._nodes = [each for each in self._nodes if each != node]
        for job in [job for job, at in self._sent.items() if at == node]:
            del self._sent[job]
            self._waiting[job] = None

    def _wake(self) -> None:
        if self._waiting and self._nodes:
            with suppress(RuntimeError):  # the server stops
                self._worker.submit(self._send)

    def _send(self) -> None:
        """Send the orders that no node has, to the nodes in turn."""
        while (next_order := self._take()) is not None:
            job, node = next_order
            try:
                self._send_order(job, node)
            except Exception as error:  # of the database or the signature: the others are sent
                log.exception("no order to remove the checkpoints of job %s", job)
                self._give_up(job, f"{type(error).__name__}: {error}")

    def _send_order(self, job: JobId, node: NodeName) -> None:
        uid = self._uid_of(job)
        signed = (
            self._signer.sign_removal(node, job, uid, self._path_of(job))
            if self._signer is not None and uid is not None
            else None
        )
        if signed is None:
            reason = "the job is unknown" if uid is None else f"user {uid} has no account here"
            self._give_up(job, reason)
            return
        order = node_pb2.RemoveCheckpoints(job=job, signed_order=signed)
        self._connections.send_to_node(node, node_pb2.NodeOrder(remove_checkpoints=order))

    def _take(self) -> tuple[JobId, NodeName] | None:
        with self._lock:
            used = Counter(self._sent.values())
            node = next((each for each in self._nodes if used[each] < MAX_AT_NODE), None)
            if node is None or not self._waiting:
                return None
            self._nodes.remove(node)
            self._nodes.append(node)
            job = next(iter(self._waiting))
            del self._waiting[job]
            self._sent[job] = node
            return job, node

    def _give_up(self, job: JobId, reason: str) -> None:
        with self._lock:
            self._sent.pop(job, None)
        self._warn(job, reason)

    def _warn(self, job: JobId, reason: str) -> None:
        log.warning("the checkpoints in %s are not removed: %s", self._path_of(job), reason)

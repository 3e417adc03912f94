"""Have nodes remove the checkpoints of users' jobs that have ended.

The server has no rights on these folders. It signs an order for a node that has a root helper and
shares the folder of checkpoints. The helper removes the folder of the job with the rights of its
user. If the stream of a node breaks, the order may be lost. Then the server sends the order to
another node, or to the same node when that registers again. An order that was refused or failed is
repeated after a delay, which grows with each attempt. A restarted server searches for the folders
that are still there.

A user can make removals slow, for example with a file system that does not answer. So while other
users wait, each user has at most one order at a time. A removal that failed waits behind all
others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.core.values.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.protos.sanitize_text import sanitize_text
from pliant.server.execution.connections import Connections
from pliant.server.support.threads import start_thread

if TYPE_CHECKING:  # a server for one host needs no certificates, which take long to import
    from pliant.server.execution.launch_signing import OrderSigner

log = logging.getLogger(__name__)

#: Orders that a node has at once. A controller carries out as many, and an order that waits there
#: for the removal of large folders would expire.
MAX_AT_NODE = 2
#: Seconds until the first repetition, and the longest delay. Each delay is twice the one before.
RETRY_S, MAX_RETRY_S = 30.0, 4 * 3600.0
#: Removals that are remembered, and those of one user. Further ones are found by another search of
#: the folder. So a user whose removals do not succeed cannot keep those of others out.
MAX_WAITING, MAX_OF_USER = 10_000, 1000
#: Seconds between two searches.
SEARCH_S = 60.0
#: Seconds until an order counts as failed. A controller answers earlier, unless it hangs.
ORDER_TIMEOUT_S = 900.0
_MAX_TEXT = 300


@dataclass(slots=True)
class _Removal:
    """The checkpoint folders of one ended job, which a node must remove one after the other."""

    job: JobId
    #: There are two if a folder has a name of an earlier version. An order is about the first.
    folders: list[Path]
    #: The user of the job; None if nobody has looked it up yet.
    uid: int | None = None
    failures: int = 0
    #: When the next order may be sent, or when the order that a node has counts as failed; on the
    #: monotonic clock.
    due: float = 0.0


class CheckpointRemovals:
    """The queue of checkpoint folders that nodes must remove, because their jobs have ended.

    Every method may be called from any thread. A thread looks up users and sends the orders,
    because a user database may answer slowly.
    """

    def __init__(
        self,
        connections: Connections,
        signer: OrderSigner | None,
        uid_of: Callable[[JobId], int | None],
        search: Callable[[], None] = lambda: None,
    ) -> None:
        """Create an empty queue of checkpoint folders that nodes must remove.

        Args:
            connections: the connections to the nodes.
            signer: the signer of orders; None if the cluster has no identity.
            uid_of: returns the user of a job, None if the job is unknown.
            search: calls `add` for each folder that is still there. It is called if removals were
                dropped because the queue was full, after the queued ones have been carried out.
        """
        self._connections, self._signer = connections, signer
        self._uid_of, self._search = uid_of, search
        self._changed = threading.Condition()
        #: The removals for which no node has an order, in the order in which they are tried.
        self._waiting: dict[JobId, _Removal] = {}
        #: Those of them whose users have not been looked up.
        self._new: list[_Removal] = []
        #: By job, the removals that are carried out, and the node that has the order.
        self._sent: dict[JobId, tuple[_Removal, NodeName]] = {}
        #: Nodes that can remove folders of users. The first one gets the next order.
        self._nodes: list[NodeName] = []
        self._is_searching_later = self._is_stopped = False
        #: When the next search may begin, on the monotonic clock.
        self._search_due = 0.0
        self._thread: threading.Thread | None = None

    def stop(self) -> None:
        """Send no more orders. The next server finds the folders that are still there."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def add(self, job: JobId, folder: Path) -> None:
        """Queue the removal of a checkpoint folder of an ended job.

        Nothing happens if an order for this folder is queued or under way. If the queue is full,
        the folder is dropped, and a later search finds it.
        """
        with self._changed:
            known = self._waiting.get(job) or self._sent.get(job, (None,))[0]
            if known is not None:
                if folder not in known.folders:
                    known.folders.append(folder)
                return
            if len(self._waiting) >= MAX_WAITING:
                self._is_searching_later = True
                return
            removal = self._waiting[job] = _Removal(job, [folder])
            self._new.append(removal)
            self._wake()

    def on_node(self, node: NodeName, *, is_able: bool) -> None:
        """Record whether a node that has registered can remove folders of users.

        Removals that were sent to the node earlier and are not finished are queued again.
        """
        with self._changed:
            self._nodes = [each for each in self._nodes if each != node]
            for removal, at in list(self._sent.values()):
                if at == node:
                    self._wait_again(removal, due=0.0)
            if is_able:
                self._nodes.append(node)
            self._wake()

    def on_node_gone(self, node: NodeName) -> None:
        """Queue the removals again that were sent to a node whose stream has ended."""
        self.on_node(node, is_able=False)

    def on_result(self, node: NodeName, result: node_pb2.CheckpointsRemoved) -> None:
        """Handle a node's report on a removal; ignore it if the order was sent to another node."""
        job = JobId(result.job)
        with self._changed:
            removal, at = self._sent.get(job, (None, None))
            if removal is None or at != node:
                return
            del self._sent[job]
            if result.problem:
                problem = sanitize_text(result.problem)[:_MAX_TEXT]
                self._retry_later(removal, f"node {node}: {problem}")
            else:
                self._drop_folder(removal)
            self._wake()

    # ---------------------------------------------------------------- with the lock held

    def _wake(self) -> None:
        """Make the thread check which orders to send; the first call starts the thread."""
        if self._is_stopped or not (self._waiting and self._nodes):
            return
        if self._thread is None:
            self._thread = start_thread("removals", self._run, lambda _: None)
        self._changed.notify_all()

    def _drop_folder(self, removal: _Removal) -> None:
        """Take the first folder off a removal's list, and queue the removal again for the next.

        The folder was removed, or cannot be removed.
        """
        del removal.folders[0]
        if removal.folders:
            self._wait_again(removal, due=0.0)

    def _wait_again(self, removal: _Removal, due: float) -> None:
        self._sent.pop(removal.job, None)
        removal.due = due
        self._waiting.pop(removal.job, None)
        self._waiting[removal.job] = removal  # behind all others

    def _retry_later(self, removal: _Removal, reason: str) -> None:
        delay = min(MAX_RETRY_S, RETRY_S * 2.0 ** min(removal.failures, 30))
        removal.failures += 1
        folder = removal.folders.pop(0)
        removal.folders.append(folder)  # the other one must not wait for it
        self._wait_again(removal, time.monotonic() + delay)
        log.warning(
            "the checkpoints in %s are not removed: %s; attempt %d follows in %.0f s",
            folder,
            reason,
            removal.failures + 1,
            delay,
        )

    def _take(self) -> tuple[_Removal, NodeName] | None:
        """Take the next removal from the queue, and return it with the node that gets the order.

        None if no removal is due, or if each node is working on `MAX_AT_NODE` orders.
        """
        used = Counter(at for _, at in self._sent.values())
        node = next((each for each in self._nodes if used[each] < MAX_AT_NODE), None)
        removal = self._next_removal() if node is not None else None
        if node is None or removal is None:
            return None
        self._nodes.remove(node)
        self._nodes.append(node)
        del self._waiting[removal.job]
        removal.due = time.monotonic() + ORDER_TIMEOUT_S
        self._sent[removal.job] = removal, node
        return removal, node

    def _next_removal(self) -> _Removal | None:
        """Return the first removal that is due; prefer users for whom no order is under way."""
        now = time.monotonic()
        busy = {removal.uid for removal, _ in self._sent.values()}
        first = None
        for removal in self._waiting.values():
            if removal.due > now:
                continue
            if removal.uid is None or removal.uid not in busy:
                return removal
            first = first or removal
        return first

    def _fail_overdue(self) -> None:
        now = time.monotonic()
        for removal, node in list(self._sent.values()):
            if removal.due <= now:
                self._retry_later(removal, f"node {node} has not answered")

    def _seconds_to_wait(self) -> float | None:
        """Return in how many seconds the thread must look at its queue again.

        None if it only has to do so when it is woken, because no retry or search is planned.
        """
        now = time.monotonic()
        due = [removal.due for removal, _ in self._sent.values()]
        due += [removal.due for removal in self._waiting.values() if removal.due > now]
        if self._is_searching_later and len(self._waiting) < MAX_WAITING // 2:
            due.append(self._search_due)
        return max(0.05, min(due) - now) if due else None

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            self._find_users()
            with self._changed:
                if self._is_stopped:
                    return
                self._fail_overdue()
                order = self._take()
                searches = (
                    order is None
                    and self._is_searching_later
                    and len(self._waiting) < MAX_WAITING // 2
                    and time.monotonic() >= self._search_due
                )
                if order is None and not searches:
                    self._changed.wait(self._seconds_to_wait())
                    continue
                if searches:
                    self._is_searching_later = False
                    self._search_due = time.monotonic() + SEARCH_S
            if order is not None:
                self._send(*order)
            else:
                self._search_again()

    def _search_again(self) -> None:
        try:
            self._search()
        except Exception:  # of the file system or the database
            log.exception("cannot search for checkpoints of jobs that have ended")

    def _find_users(self) -> None:
        """Look up the user of each new removal, because the queue takes users in turn."""
        with self._changed:
            new, self._new = self._new, []
        for removal in new:
            try:
                removal.uid = self._uid_of(removal.job)
            except Exception:  # of the database: the user is looked up again before the order
                log.exception("cannot look up the user of job %s", removal.job)
        if new:
            with self._changed:
                self._limit_users(new)

    def _limit_users(self, new: list[_Removal]) -> None:
        """Remove new removals from the queue while their user has more than `MAX_OF_USER` there.

        The folders stay on disk. A later search for the remaining folders queues them again.
        """
        waiting = Counter(removal.uid for removal in self._waiting.values())
        for removal in reversed(new):
            if removal.uid is None or waiting[removal.uid] <= MAX_OF_USER:
                continue
            if self._waiting.get(removal.job) is removal:
                del self._waiting[removal.job]
                waiting[removal.uid] -= 1
                self._is_searching_later = True

    def _send(self, removal: _Removal, node: NodeName) -> None:
        try:
            reason = self._send_order(removal, node)
        except Exception as error:  # of the database or the signature: the others are sent
            log.exception("no order to remove the checkpoints of job %s", removal.job)
            reason = f"{type(error).__name__}: {error}"
        if not reason:
            return
        with self._changed:
            if self._sent.pop(removal.job, None) is not None:
                self._retry_later(removal, reason)

    def _send_order(self, removal: _Removal, node: NodeName) -> str:
        """Sign and send the order to remove the first folder of a removal to a node.

        Returns:
            Why this is impossible now, so that it must be tried again; an empty text otherwise.
        """
        job, folder = removal.job, removal.folders[0]
        if removal.uid is None:
            removal.uid = self._uid_of(job)
        if removal.uid is None:
            with self._changed:
                self._sent.pop(job, None)
            log.warning(
                "the checkpoints in %s stay until an administrator removes them: job %s is unknown",
                folder,
                job,
            )
            return ""
        if _owner_of(folder) not in (removal.uid, None):
            # The rights of the job's user do not suffice, and the folder is none of the job's.
            log.warning("%s is not removed: it belongs to another user than job %s", folder, job)
            with self._changed:
                if self._sent.pop(job, None) is not None:
                    self._drop_folder(removal)
                    self._wake()
            return ""
        signed = (
            self._signer.sign_removal(node, job, removal.uid, folder)
            if self._signer is not None
            else None
        )
        if signed is None:
            return f"user {removal.uid} has no account here"
        order = node_pb2.RemoveCheckpoints(job=job, signed_order=signed)
        self._connections.send_to_node(node, node_pb2.NodeOrder(remove_checkpoints=order))
        return ""


def _owner_of(folder: Path) -> int | None:
    """Return the user id of a folder's owner; None if the server cannot see it."""
    try:
        return folder.lstat().st_uid
    except OSError:
        return None

"""The open streams of node controllers and applications, and how other threads send on them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pliant.core.values.ids import JobId, NodeName
from pliant.protos import app_pb2, node_pb2

log = logging.getLogger(__name__)

#: Messages that may wait for a slow peer. The stream of a slower peer is closed. When it connects
#: again, it gets everything again.
QUEUE_LENGTH = 4096

M = TypeVar("M")


class Stream(Generic[M]):
    """The sending half of a gRPC stream: a bounded queue of messages that the gRPC loop sends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.name = name
        self._loop = loop
        self._queue: asyncio.Queue[M | None] = asyncio.Queue(QUEUE_LENGTH)
        self._closed = False
        #: Number of messages queued so far.
        self.sent = 0
        #: The sequence number of the last heartbeat that arrived on this stream.
        self.last_beat = 0

    def send(self, message: M) -> None:
        """Queue a message for the peer. May be called from any thread."""
        self._from_anywhere(message)

    def close(self) -> None:
        """End the stream after the queued messages. May be called from any thread."""
        self._from_anywhere(None)

    @property
    def is_closed(self) -> bool:
        """Return whether the stream sends nothing more. Called in the gRPC loop."""
        return self._closed

    def end_with(self, message: M) -> None:
        """Send a last message at once and drop the queued ones. Called in the gRPC loop."""
        if not self._closed:
            self._drop_waiting()
            self._put(message)
            self._put(None)

    async def messages(self) -> AsyncIterator[M]:
        """Yield the messages to send until the stream is closed."""
        while (message := await self._queue.get()) is not None:
            yield message

    def _from_anywhere(self, message: M | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._put, message)
        except RuntimeError:
            pass  # the loop has ended because the server stops; peers connect to the next server

    def _put(self, message: M | None) -> None:
        if self._closed:
            return
        if message is None:
            self._closed = True
        if self._queue.full():
            log.warning("%s does not read its stream: cut off", self.name)
            self._closed = True
            self._drop_waiting()
            message = None
        self.sent += message is not None
        self._queue.put_nowait(message)

    def _drop_waiting(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()


NodeStream = Stream[node_pb2.NodeOrder]


@dataclass(slots=True)
class AppSession:
    """The stream of an application's coordinator (its rank 0), and its last reported values.

    These values are the address for joining ranks and the measured times per iteration.
    """

    job: JobId
    run: int
    stream: Stream[app_pb2.AppOrder]
    rendezvous: str = ""
    #: Seconds per iteration by size, as last passed to the core.
    measured: Mapping[int, float] = field(default_factory=dict)


class Connections:
    """The open streams. Every method may be called from any thread.

    The accept, execute, remove and nodelist threads and the gRPC loop all attach, detach and
    close streams. The lock makes a look-up and the deletion that follows one step; without it, a
    deletion by another thread in between raises KeyError. No message is sent under the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[NodeName, NodeStream] = {}
        self._coordinators: dict[tuple[JobId, int], AppSession] = {}

    # ---------------------------------------------------------------- nodes

    def attach_node(self, name: NodeName, stream: NodeStream) -> None:
        """Use a stream for a node's orders from now on; close the stream used before."""
        with self._lock:
            before = self._nodes.get(name)
            self._nodes[name] = stream
        if before is not None:
            before.close()

    def detach_node(self, name: NodeName, stream: NodeStream) -> None:
        """Send no more orders to a node on this stream, which has ended.

        Nothing changes if another stream of the node has already replaced it.
        """
        with self._lock:
            if self._nodes.get(name) is stream:
                del self._nodes[name]

    def node_connected(self, name: NodeName) -> bool:
        """Return whether a node controller has an open stream to this server."""
        return name in self._nodes

    @property
    def coordinator_count(self) -> int:
        """Return how many applications are connected, each by its coordinator (rank 0)."""
        return len(self._coordinators)

    def close_node(self, name: NodeName) -> None:
        """End a node's stream, so that the node registers again."""
        with self._lock:
            stream = self._nodes.pop(name, None)
        if stream is not None:
            stream.close()

    def send_to_node(self, name: NodeName, order: node_pb2.NodeOrder) -> bool:
        """Send an order to a node; return False if the node is not connected.

        A node that is not connected gets its orders when it registers again.
        """
        with self._lock:
            stream = self._nodes.get(name)
        if stream is None:
            log.info("node %s is not connected: %s dropped", name, order.WhichOneof("body"))
            return False
        stream.send(order)
        return True

    def close_all(self) -> None:
        """End every stream, because the server stops."""
        with self._lock:
            nodes, sessions = list(self._nodes.values()), list(self._coordinators.values())
        for stream in nodes:
            stream.close()
        for session in sessions:
            session.stream.close()

    # ---------------------------------------------------------------- applications

    def attach_coordinator(self, session: AppSession) -> None:
        """Use a session for messages to its job's coordinator (rank 0) from now on.

        The session that was used before is closed.
        """
        key = (session.job, session.run)
        with self._lock:
            before = self._coordinators.get(key)
            self._coordinators[key] = session
        if before is not None and before is not session:
            before.stream.close()

    def detach_coordinator(self, session: AppSession) -> bool:
        """Send no more messages to a job's coordinator on this session, which has ended.

        Return False if another session of the job has already replaced it.
        """
        key = (session.job, session.run)
        with self._lock:
            if self._coordinators.get(key) is not session:
                return False
            del self._coordinators[key]
            return True

    def close_job(self, job: JobId) -> None:
        """End the sessions of a job that has ended."""
        with self._lock:
            keys = [key for key in self._coordinators if key[0] == job]
            sessions = [self._coordinators.pop(key) for key in keys]
        for session in sessions:
            session.stream.close()

    def send_to_coordinator(self, job: JobId, run: int, order: app_pb2.AppOrder) -> bool:
        """Send a message to a job's coordinator (rank 0).

        Return False if no coordinator is connected for this run.
        """
        with self._lock:
            session = self._coordinators.get((job, run))
        if session is None:
            log.info("job %d has no coordinator: %s dropped", job, order.WhichOneof("body"))
            return False
        session.stream.send(order)
        return True

    def rendezvous(self, job: JobId, run: int) -> str:
        """Return the address at which joining ranks reach a job's coordinator (rank 0).

        It is empty if no coordinator is connected for this run, or it has sent no address.
        """
        with self._lock:
            session = self._coordinators.get((job, run))
        return session.rendezvous if session else ""

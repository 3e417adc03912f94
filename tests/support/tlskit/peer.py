"""A node on the nodes' port that says what the test wants."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from pliant.protos import app_pb2, app_pb2_grpc, node_pb2, node_pb2_grpc
from pliant.protos.grpc_channel_options import tls_channel_options
from tlskit import Credentials

#: For the answer of a server on a loaded machine, seconds.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Answer:
    """How a stream ended before anything was exchanged: the code and the words of gRPC."""

    code: grpc.StatusCode
    details: str


class TlsPeer:
    """A stream to the nodes' port with some certificate, or none."""

    def __init__(self, address: str, roots: bytes, shown: Credentials | None) -> None:
        pair = (shown.key, shown.certificates) if shown else ()
        credentials = grpc.ssl_channel_credentials(roots, *pair)
        self.channel = grpc.secure_channel(address, credentials, tls_channel_options())
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._orders: Any = None
        self.error: Answer | None = None
        #: Orders that have arrived; None at the end.
        self.inbox: queue.Queue[Any] = queue.Queue()

    def open(self, *first: node_pb2.NodeReport) -> TlsPeer:
        """Open the stream of a node."""
        for each in first:
            self._outbox.put(each)
        stub: Any = node_pb2_grpc.NodeServiceStub(self.channel)
        self._orders = stub.Connect(self._reports(), timeout=2 * PATIENCE_S)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def open_application(self) -> Answer:
        """Try the applications' service on this port."""
        stub: Any = app_pb2_grpc.AppServiceStub(self.channel)
        try:
            for order in stub.Session(iter([app_pb2.AppReport()]), timeout=PATIENCE_S):
                raise AssertionError(order)
        except grpc.RpcError as error:
            return _answer(error)
        raise AssertionError("the stream ended without an error")

    def say(self, report: node_pb2.NodeReport) -> None:
        """Send a report."""
        self._outbox.put(report)

    def next(self) -> Any:
        """Return the next order, or None if the stream has ended; see `error`."""
        return self.inbox.get(timeout=PATIENCE_S)

    def find(self, body: str) -> Any:
        """Return the next order of a kind; fail if the stream ends before."""
        while (order := self.next()) is not None:
            if order.WhichOneof("body") == body:
                return getattr(order, body)
        raise AssertionError(f"no {body}, the stream ended: {self.error}")

    def close(self) -> None:
        """End the stream and the connection."""
        self._outbox.put(None)
        self.channel.close()

    def _reports(self) -> Iterator[Any]:
        while (report := self._outbox.get()) is not None:
            yield report

    def _read(self) -> None:
        try:
            for order in self._orders:
                self.inbox.put(order)
        except grpc.RpcError as error:
            self.error = _answer(error)
        self.inbox.put(None)


def registration(name: str, slots: int = 2, **more: Any) -> node_pb2.NodeReport:
    """Return the first report of a node."""
    register = node_pb2.Register(
        name=name, slots=slots, cluster="main", address="127.0.0.1", **more
    )
    return node_pb2.NodeReport(register=register)


def _answer(error: grpc.RpcError) -> Answer:
    assert isinstance(error, grpc.Call)
    return Answer(error.code(), error.details() or "")

"""A fake of the server's application service, without a scheduler behind it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc

from pliant.protos import app_pb2 as pb
from pliant.protos import app_pb2_grpc
from pliant.protos.hmac_handshake import begin

Orders = queue.SimpleQueue["pb.AppOrder | None"]

#: Of the one application that it knows.
TOKEN = b"token"

#: As the real server: coordinators may ask whether it is there.
OPTIONS = [("grpc.http2.min_ping_interval_without_data_ms", 5_000)]


class Server(app_pb2_grpc.AppServiceServicer):
    """The application service for the sessions of one application.

    It welcomes or refuses every session, sends the orders of the test to the coordinator, and
    queues reports by kind. It does not negotiate, place or commit anything, and it does not check
    reports. With another token than the application has, it is a stranger: it sends an order
    without having been proven, and records what it is sent.
    """

    def __init__(self, refuse: str = "", token: bytes = TOKEN) -> None:
        self.refuse, self._token = refuse, token
        self.opened = threading.Event()
        self.unproven: list[pb.AppReport] = []  # sent to a stranger
        self.hellos: queue.SimpleQueue[pb.Hello] = queue.SimpleQueue()
        self.reports: dict[str, queue.SimpleQueue[pb.AppReport]] = {
            kind: queue.SimpleQueue()
            for kind in (
                "answer",
                "begun",
                "cancel",
                "hello",
                "outcome",
                "progress",
                "request",
                "withdrawn",
            )
        }
        self._coordinator: Orders | None = None
        self._present = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(32), options=OPTIONS)
        app_pb2_grpc.add_AppServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        """Break all streams at once."""
        self._server.stop(0).wait()

    def send(self, order: pb.AppOrder, timeout: float = 60.0) -> None:
        """Send an order to the coordinator, when there is one."""
        with self._present:
            assert self._present.wait_for(lambda: self._coordinator is not None, timeout)
            assert self._coordinator is not None
            self._coordinator.put(order)

    def next(self, kind: str, timeout: float = 60.0) -> pb.AppReport:
        """The next report of a kind."""
        return self.reports[kind].get(timeout=timeout)

    def Session(
        self, request_iterator: Iterator[pb.AppReport], context: grpc.ServicerContext
    ) -> Iterator[pb.AppOrder]:
        """Serve one stream."""
        orders: Orders = queue.SimpleQueue()
        shaking = begin(context.invocation_metadata(), self._token)
        context.send_initial_metadata(shaking.metadata)
        self.opened.set()
        if self._token != TOKEN:
            with suppress(grpc.RpcError):
                self.unproven.extend(request_iterator)
            yield pb.AppOrder(go=pb.Go(resize=5))
            return
        assert shaking.verifies(next(request_iterator).proof)
        hello = next(request_iterator).hello
        if self.refuse:
            yield pb.AppOrder(refused=pb.AppRefused(reason=self.refuse))
            return
        if hello.role == pb.ROLE_COORDINATOR:
            self._elect(orders)
        self.hellos.put(hello)
        threading.Thread(target=self._listen, args=(request_iterator, orders), daemon=True).start()
        yield pb.AppOrder(welcome=pb.AppWelcome(generation=1))
        while (order := orders.get()) is not None:
            yield order

    def _listen(self, reports: Iterator[pb.AppReport], orders: Orders) -> None:
        try:
            for report in reports:
                kind = str(report.WhichOneof("body"))
                if kind == "outcome":
                    self._elect(orders)
                self.reports[kind].put(report)
        except grpc.RpcError:
            pass  # the stream broke
        orders.put(None)

    def _elect(self, orders: Orders) -> None:
        with self._present:
            self._coordinator = orders
            self._present.notify_all()

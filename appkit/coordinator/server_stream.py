"""The gRPC stream between the coordinator and the server, in threads of its own.

grpc is imported only when the thread runs. A broken stream is opened again until the application
ends, each time at the server's present address. A server that is away never disturbs the
application.
"""

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pliant.appkit import clock
from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.appkit.coordinator.messages import (
    CoordinatorReport,
    Hello,
    NegotiationMessage,
    RequestRecord,
)
from pliant.appkit.coordinator.offer_thread import OfferThread
from pliant.appkit.coordinator.welcome_timeout import WelcomeWatchdog
from pliant.faults import message

if TYPE_CHECKING:
    import grpc

    from pliant.core.model.negotiation import Template
    from pliant.protos import app_pb2

log = logging.getLogger(__name__)

#: Seconds between two reports of progress.
PROGRESS_INTERVAL_S = 1.0
#: Seconds after which a server that accepts the connection but does not welcome is given up.
WELCOME_TIMEOUT_S = 30.0
#: Shortest and longest wait before the stream is opened again, in seconds.
_MIN_WAIT_S = 0.05
_MAX_WAIT_S = 2.0
#: Reports that are not kept for the next stream: negotiations end with their stream, and Hello
#: repeats the request.
_PER_STREAM = (NegotiationMessage, RequestRecord)


class CoordinatorStream:
    """Connects one coordinator to the server, and again after each break; a `ReportChannel`."""

    def __init__(
        self,
        coordinator: Coordinator,
        address: Callable[[], str],
        roots: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """Prepare the stream; `start` opens it.

        Args:
            coordinator: gets the messages of the server.
            address: returns the server's present address.
            roots: returns the root certificates, one of which must have signed that of the server,
                in PEM form; None if there is no TLS.
        """
        self._coordinator = coordinator
        self._address, self._roots = address, roots
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._backlog: list[CoordinatorReport] = []
        self._stream: _Connection | None = None
        self._thread = threading.Thread(target=self._run, name="pliant-session", daemon=True)

    def start(self) -> None:
        """Start a thread that connects to the server, and connects again until `stop` is called."""
        self._thread.start()

    def send(self, report: CoordinatorReport) -> None:
        """Queue a report for the present stream to the server, or for the next if there is none.

        Without a stream, a message of a negotiation is dropped, because negotiations end with their
        stream. So is a request, because the latest one is sent again when a stream begins.
        """
        with self._lock:
            if self._stream is not None:
                self._stream.outbox.put(report)
            elif not isinstance(report, _PER_STREAM):
                self._backlog.append(report)

    def stop(self, timeout: float) -> None:
        """Send the queued reports and end the stream; wait at most ``timeout`` seconds."""
        self._stopping.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.outbox.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive() and stream is not None:
            stream.cancel()
            self._thread.join(1.0)

    def _run(self) -> None:
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the application's stderr is not ours
        wait = _MIN_WAIT_S
        offers = OfferThread(self._coordinator)
        offers.start()
        while not self._stopping.is_set():
            stream = _Connection(self._coordinator, offers)
            with self._lock:
                for report in self._backlog:
                    stream.outbox.put(report)
                self._backlog.clear()
                self._stream = stream
            welcomed = stream.serve(self._address, self._roots, self._stopping)
            with self._lock:
                self._stream = None
                self._backlog.extend(stream.unsent_reports())
            wait = _MIN_WAIT_S if welcomed else min(2 * wait, _MAX_WAIT_S)
            self._stopping.wait(wait)
        offers.stop()


class _Connection:
    """One connection to the server, from its first message (Hello) until it ends."""

    def __init__(self, coordinator: Coordinator, offers: OfferThread) -> None:
        self.outbox: queue.SimpleQueue[CoordinatorReport | None] = queue.SimpleQueue()
        self._coordinator = coordinator
        self._offers = offers
        self._over = self._welcomed = False
        self._watchdog = WelcomeWatchdog()
        #: The proof for the server that this is its application; None if the stream has ended.
        self._proof: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call: grpc._CallIterator[app_pb2.AppOrder] | None = None

    def serve(
        self,
        find_address: Callable[[], str],
        find_roots: Callable[[], bytes | None],
        stopping: threading.Event,
    ) -> bool:
        """Open the stream, and handle the server's messages until it ends.

        Args:
            find_address: returns the server's present address.
            find_roots: returns the root certificates to trust, in PEM form; None without TLS.
            stopping: set if the application ends.

        Returns:
            Whether the server has accepted the application.
        """
        from pliant.protos.address import dial_target

        address = find_address()
        self._watchdog.start(lambda: find_address() == address, self.cancel, WELCOME_TIMEOUT_S)
        try:
            with (
                dial_target(address) as target,
                _open_channel(target, find_roots()) as channel,
            ):
                self._call = self._open(channel)
                if stopping.is_set():
                    self.outbox.put(None)
                for order in self._call:
                    self._watchdog.stop()
                    self._welcomed = True
                    self._dispatch(order)
        except Exception as error:  # the server is away or has sent nonsense: try again
            log.debug("the stream to the server at %s ended: %s", address, error)
        finally:
            self._watchdog.stop()
            self._over = True
            self._proof.put(None)
            self.cancel()
            self.outbox.put(None)
        return self._welcomed

    def _open(self, channel: "grpc.Channel") -> "grpc._CallIterator[app_pb2.AppOrder]":
        """Start the gRPC call of this stream, and return the iterator over the server's messages.

        Each side proves that it knows the token, a secret of this run of the job.

        Raises:
            UnprovenServerError: the other side does not know the token.
        """
        from pliant.appkit.coordinator import protobuf_codec
        from pliant.protos import app_pb2_grpc
        from pliant.protos.hmac_handshake import ClientHandshake, application

        hello = self._coordinator.begin_stream()
        shaking = ClientHandshake(hello.token, application(hello.job, hello.run))
        reports = _with_clock(self._reports(protobuf_codec.hello_to_wire(hello)))
        call = app_pb2_grpc.AppServiceStub(channel).Session(reports, metadata=shaking.metadata)
        self._call = call
        self._proof.put(shaking.proof(call.initial_metadata()))
        return call

    def cancel(self) -> None:
        """End the gRPC call at once, without waiting for the server."""
        self._proof.put(None)
        if self._call is not None:
            self._call.cancel()

    def unsent_reports(self) -> list[CoordinatorReport]:
        """Return the queued reports that must be sent on the next stream.

        Messages of negotiations are left out, because negotiations end with their stream. So are
        requests, because the latest one is sent again when the next stream begins.
        """
        left: list[CoordinatorReport] = []
        while not self.outbox.empty():
            report = self.outbox.get()
            if report is not None and not isinstance(report, (Hello, *_PER_STREAM)):
                left.append(report)
        return left

    def _reports(self, hello: "app_pb2.AppReport") -> Iterator["app_pb2.AppReport"]:
        from pliant.appkit.coordinator import protobuf_codec
        from pliant.protos import app_pb2

        proof = self._proof.get()
        if proof is None:
            return
        yield app_pb2.AppReport(proof=proof)
        yield hello
        due = time.monotonic() + PROGRESS_INTERVAL_S
        while not self._over:
            try:
                report = self.outbox.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = time.monotonic() + PROGRESS_INTERVAL_S
                progress = self._coordinator.progress()
                if progress is not None:
                    yield protobuf_codec.progress_to_wire(progress)
                continue
            if report is None:
                return
            yield protobuf_codec.report_to_wire(report)

    def _dispatch(self, order: "app_pb2.AppOrder") -> None:
        from pliant.appkit.coordinator import protobuf_codec
        from pliant.protos.codec import answer_from_proto

        match order.WhichOneof("body"):
            case "offer":
                for _ in message("appkit.offer.heard"):
                    self._on_offer(order.offer)
            case "go":
                for _ in message("appkit.go.heard"):
                    self._coordinator.go(protobuf_codec.decision_from_wire(order.go))
            case "withdraw":
                self._coordinator.withdraw(order.withdraw.resize)
            case "suspend":
                self._coordinator.suspension.on_order(
                    *protobuf_codec.suspension_from_wire(order.suspend)
                )
            case "request_answer":
                self._coordinator.on_request_answer(answer_from_proto(order.request_answer))
            case "refused":
                _on_refused(order.refused.reason, self._coordinator.standby)

    def _on_offer(self, offer: "app_pb2.Template") -> None:
        from pliant.protos.codec import template_from_proto

        template = template_from_proto(offer)
        reply = self._coordinator.receive_offer(template)
        if reply is None:
            self._offers.put(self, template)
        else:
            self.send_answer(reply)

    def send_answer(self, reply: "Template") -> None:
        """Queue the answer to a proposal; it is dropped if this stream breaks before."""
        for _ in message("appkit.offer.answered"):
            self.outbox.put(NegotiationMessage(reply))


def _open_channel(target: str, roots: bytes | None) -> "grpc.Channel":
    """Open a gRPC channel to the server, with TLS if there are root certificates.

    Args:
        target: the address of the server.
        roots: the certificates, one of which must have signed that of the server, in PEM form; None
            for a channel without TLS.
    """
    import grpc

    from pliant.protos.grpc_channel_options import channel_options, tls_channel_options

    if roots is None:
        return grpc.insecure_channel(target, options=channel_options())
    credentials = grpc.ssl_channel_credentials(roots)
    return grpc.secure_channel(target, credentials, options=tls_channel_options())


def _with_clock(reports: Iterator["app_pb2.AppReport"]) -> Iterator["app_pb2.AppReport"]:
    """Yield each report after setting its ``clock`` to the present time."""
    for report in reports:
        report.clock = clock.now()
        yield report


def _on_refused(reason: str, standby: bool) -> None:
    """Print why the server refused this application, and end the process unless it is a standby.

    Args:
        reason: the server's reason.
        standby: whether this process only stands by to become rank 0 in the next shrink. It then
            continues.
    """
    print(f"pliant: the server refused this application: {reason}", file=sys.stderr)
    sys.stderr.flush()
    if not standby:
        sys.stdout.flush()
        os._exit(1)

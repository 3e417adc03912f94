"""The stream between the coordinator and the server, in threads of its own.

Loads grpc when the thread runs, not before. A broken stream is opened again, with the address read
anew, until the application ends; a server that is away never disturbs the application.
"""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pliant.appkit.coordinator import Coordinator
from pliant.appkit.messages import Hello, Report

if TYPE_CHECKING:
    import grpc

    from pliant.protos import app_pb2

#: Seconds between two reports of progress.
PROGRESS_INTERVAL_S = 1.0
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0


class Session:
    """One coordinator's way to the server; a ``coordinator.Channel``."""

    def __init__(self, coordinator: Coordinator, address: Callable[[], str]) -> None:
        """Describe a session; ``address`` gives the server's present ``host:port``."""
        self._coordinator = coordinator
        self._address = address
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._backlog: list[Report] = []
        self._stream: _Stream | None = None
        self._thread = threading.Thread(target=self._run, name="pliant-session", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, report: Report) -> None:
        """Queue a report for this stream or the next."""
        with self._lock:
            if self._stream is None:
                self._backlog.append(report)
            else:
                self._stream.outbox.put(report)

    def stop(self, timeout: float) -> None:
        """Send what is queued, end the stream, wait at most ``timeout`` seconds."""
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
        wait = _FIRST_WAIT_S
        while not self._stopping.is_set():
            stream = _Stream(self._coordinator)
            with self._lock:
                for report in self._backlog:
                    stream.outbox.put(report)
                self._backlog.clear()
                self._stream = stream
            welcomed = stream.talk(self._address(), self._stopping)
            with self._lock:
                self._stream = None
                self._backlog.extend(stream.undelivered())
            wait = _FIRST_WAIT_S if welcomed else min(2 * wait, _LONGEST_WAIT_S)
            self._stopping.wait(wait)


class _Stream:
    """One connection, from Hello to its end."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.outbox: queue.SimpleQueue[Report | app_pb2.AppReport | None] = queue.SimpleQueue()
        self._coordinator = coordinator
        self._over = False
        self._call: grpc._CallIterator[app_pb2.AppOrder] | None = None

    def talk(self, address: str, stopping: threading.Event) -> bool:
        """Serve the stream until it ends; whether the server welcomed it."""
        import grpc

        from pliant.protos import app_pb2_grpc

        welcomed = False
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(address, options=options) as channel:
            try:
                self._call = app_pb2_grpc.AppServiceStub(channel).Session(self._reports())
                if stopping.is_set():
                    self.outbox.put(None)
                for order in self._call:
                    welcomed = True
                    self._obey(order)
            except (grpc.RpcError, OSError, ValueError):
                pass  # the server is away, or went: try again
            finally:
                self._over = True
                self.outbox.put(None)
        return welcomed

    def cancel(self) -> None:
        """End the call whatever the server does."""
        if self._call is not None:
            self._call.cancel()

    def undelivered(self) -> list[Report]:
        """What was queued and not taken for sending; answers to offers are void by then."""
        left: list[Report] = []
        while not self.outbox.empty():
            report = self.outbox.get()
            if isinstance(report, Report) and not isinstance(report, Hello):
                left.append(report)
        return left

    def _reports(self) -> Iterator["app_pb2.AppReport"]:
        from pliant.appkit import wire

        yield wire.hello_to_wire(self._coordinator.hello())
        due = time.monotonic() + PROGRESS_INTERVAL_S
        while not self._over:
            try:
                report = self.outbox.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = time.monotonic() + PROGRESS_INTERVAL_S
                progress = self._coordinator.progress()
                if progress is not None:
                    yield wire.progress_to_wire(progress)
                continue
            if report is None:
                return
            yield wire.report_to_wire(report) if isinstance(report, Report) else report

    def _obey(self, order: "app_pb2.AppOrder") -> None:
        from pliant.appkit import wire

        match order.WhichOneof("body"):
            case "offer":
                self._answer(order.offer)
            case "go":
                self._coordinator.go(wire.decision_from_wire(order.go))
            case "withdraw":
                self._coordinator.withdraw(order.withdraw.resize)
            case "refused":
                _give_up(order.refused.reason, self._coordinator.standby)

    def _answer(self, template: "app_pb2.Template") -> None:
        from pliant.appkit import wire
        from pliant.appkit.messages import Answer
        from pliant.core.negotiation import Verb

        try:
            offer = wire.offer_from_wire(template, self._coordinator.size)
            answer = self._coordinator.offered(offer)
        except Exception as error:  # of the program's on_offer, or of a template we cannot read
            answer = Answer(Verb.REJECT, f"{type(error).__name__}: {error}")
        self.outbox.put(wire.answer_to_wire(answer, template))


def _give_up(reason: str, standby: bool) -> None:
    """The server will not have this application: it cannot be managed, so it ends."""
    print(f"pliant: the server refused this application: {reason}", file=sys.stderr)
    sys.stderr.flush()
    if not standby:
        sys.stdout.flush()
        os._exit(1)

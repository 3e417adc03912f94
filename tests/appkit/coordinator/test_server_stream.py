"""The stream to a server that vanishes, does not answer, or talks nonsense; no MPI."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import grpc
import pytest

from pliant.appkit.coordinator import server_stream as module
from pliant.appkit.coordinator.messages import (
    BegunReport,
    CheckpointReport,
    Decision,
    Hello,
    NegotiationMessage,
    Progress,
    RequestRecord,
    ResizeOutcome,
    Withdrawn,
)
from pliant.appkit.coordinator.server_stream import CoordinatorStream
from pliant.appkit.json_lines import JsonLines, serve
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.negotiation import Template, Verb
from pliant.core.values.sizes import parse_sizes
from pliant.protos import app_pb2 as pb
from pliant.protos import grpc_channel_options
from pliant.protos.sanitize_text import sanitize_text
from standin import Server
from testkit import wait_until


class Desk:
    """A coordinator that does as it is told."""

    standby = False

    def __init__(self) -> None:
        self.heard_last: Template | None = None
        self.reply: Template | None = None
        #: Not set: the program has not made up its mind.
        self.thinks = threading.Event()
        self.thinks.set()
        self.orders: queue.SimpleQueue[Decision] = queue.SimpleQueue()

    def begin_stream(self) -> Hello:
        return Hello(7, 1, 0, b"token", False, (0,), "1-4", 0, "127.0.0.1:1", 3, True)

    def progress(self) -> Progress | None:
        return Progress(0.0, 1, 1, 1)

    def receive_offer(self, template: Template) -> Template | None:
        self.heard_last = template
        return None

    def answer_offer(self, template: Template) -> Template | None:
        self.thinks.wait(30)
        return self.reply if self.heard_last == template else None

    def go(self, decision: Decision) -> None:
        if not decision.resize:
            raise RuntimeError("no coordinator expects this")
        self.orders.put(decision)

    def withdraw(self, resize: int) -> None:
        raise AssertionError("not in these tests")


class Relay:
    """Stands between application and server; connections freeze, as if the host were gone."""

    def __init__(self) -> None:
        self.target = ""
        self.connections: list[tuple[socket.socket, ...]] = []
        self.frozen: set[int] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listener.accept()
            except OSError:
                return
            number = len(self.connections)
            if not self.target:
                self.connections.append((inside,))
                continue
            host, _, port = self.target.rpartition(":")
            outside = socket.create_connection((host, int(port)))
            self.connections.append((inside, outside))
            for one, other in ((inside, outside), (outside, inside)):
                threading.Thread(target=self._pass, args=(number, one, other), daemon=True).start()

    def _pass(self, number: int, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                if number not in self.frozen:
                    other.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self.connections:
            for sock in pair:
                sock.close()


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay()
    yield relay
    relay.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


Open = Callable[[str | Callable[[], str]], tuple[CoordinatorStream, Desk]]


@pytest.fixture
def open_stream() -> Iterator[Open]:
    opened: list[CoordinatorStream] = []

    def begin(address: str | Callable[[], str]) -> tuple[CoordinatorStream, Desk]:
        desk = Desk()
        find = address if callable(address) else lambda: address
        stream = CoordinatorStream(desk, find)  # type: ignore[arg-type]  # as much as is needed
        stream.start()
        opened.append(stream)
        return stream, desk

    yield begin
    for stream in opened:
        stream.stop(0.5)
    wait_until(lambda: "pliant-session" not in [thread.name for thread in threading.enumerate()])


def test_a_host_that_is_gone_is_noticed_and_the_stream_opened_again(
    relay: Relay, server: Server, open_stream: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = grpc_channel_options.channel_options(keepalive_s=1.0, timeout_s=1.0)
    monkeypatch.setattr(grpc_channel_options, "channel_options", lambda: options)
    relay.target = server.address
    open_stream(relay.address)
    server.hellos.get(timeout=40)
    relay.frozen.add(0)
    again = server.hellos.get(timeout=40)
    assert (again.pending_resize, again.begun) == (3, True)
    assert len(relay.connections) == 2


def test_a_server_that_does_not_welcome_is_given_up(
    relay: Relay, open_stream: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WELCOME_TIMEOUT_S", 0.5)
    open_stream(relay.address)
    wait_until(lambda: len(relay.connections) >= 2)


def test_a_stream_to_another_clusters_server_is_left_for_the_own_server(
    relay: Relay, server: Server, open_stream: Open
) -> None:
    stranger = Server(token=b"token of another")
    relay.target = stranger.address
    _, desk = open_stream(relay.address)
    assert stranger.opened.wait(60)
    relay.target = server.address
    server.hellos.get(timeout=40)
    stranger.stop()
    assert (stranger.unproven, desk.orders.empty()) == ([], True)


def test_only_answers_of_the_coordinator_are_sent(server: Server, open_stream: Open) -> None:
    stream, desk = open_stream(server.address)
    end = Template(1, 7, 0, Verb.REJECT, reason="no counters")
    server.send(pb.AppOrder(offer=pb.Template(negotiation=1, job=7, verb=pb.VERB_REJECT)))
    wait_until(lambda: desk.heard_last)
    assert desk.heard_last == Template(1, 7, 0, Verb.REJECT)
    desk.reply = end
    server.send(pb.AppOrder(offer=pb.Template(negotiation=2, job=7, verb=pb.VERB_OFFER)))
    assert server.next("answer").answer.reason == "no counters"
    stream.send(BegunReport(2))
    assert server.next("begun").begun.resize == 2
    assert server.reports["answer"].empty()


def test_orders_are_handled_while_the_program_considers_an_offer(
    server: Server, open_stream: Open
) -> None:
    _, desk = open_stream(server.address)
    desk.reply = Template(1, 7, 0, Verb.REJECT, reason="at last")
    desk.thinks.clear()
    server.send(pb.AppOrder(offer=pb.Template(negotiation=1, job=7, verb=pb.VERB_OFFER)))
    server.send(pb.AppOrder(go=pb.Go(resize=5)))
    assert desk.orders.get(timeout=40).resize == 5
    assert server.reports["answer"].empty()
    desk.thinks.set()
    assert server.next("answer").answer.reason == "at last"


def test_an_order_that_fails_does_not_end_the_session(server: Server, open_stream: Open) -> None:
    stream, desk = open_stream(server.address)
    server.send(pb.AppOrder(go=pb.Go(resize=0)))
    server.hellos.get(timeout=40)
    server.hellos.get(timeout=40)
    stream.send(Withdrawn(4))
    assert server.next("withdrawn").withdrawn.resize == 4
    server.send(pb.AppOrder(offer=pb.Template(verb=pb.VERB_UNSPECIFIED)))
    server.hellos.get(timeout=40)
    server.send(pb.AppOrder(go=pb.Go(resize=5)))
    assert desk.orders.get(timeout=40).resize == 5


@pytest.mark.parametrize("text", ["grid of file \udcff", "x" * (5 << 20)])
def test_long_or_invalid_reasons_of_a_program_do_not_break_the_stream(
    server: Server, open_stream: Open, text: str
) -> None:
    stream, desk = open_stream(server.address)
    server.hellos.get(timeout=40)
    desk.reply = Template(1, 7, 0, Verb.REJECT, reason=f"ValueError: {text}")
    server.send(pb.AppOrder(offer=pb.Template(negotiation=1, job=7, verb=pb.VERB_OFFER)))
    told = [server.next("answer").answer.reason]
    stream.send(ResizeOutcome(1, False, 0, (0,), "check", text))
    told.append(server.next("outcome").outcome.reason)
    stream.send(RequestRecord(1, parse_sizes("4"), text, 0.0))
    told.append(server.next("request").request.reason)
    assert all(reason.endswith(("\\udcff", "...")) for reason in told)
    assert server.hellos.empty(), "it did not connect again"


@pytest.mark.parametrize("text", ["grid of file \udcff", "x" * (5 << 20)])
def test_what_a_hello_and_a_save_report_say_can_be_sent(text: str) -> None:
    from pliant.appkit.coordinator import protobuf_codec

    saving = CheckpointReport(1, SaveProgress.FAILED, text)
    hello = replace(
        Desk().begin_stream(), saving=saving, asked=RequestRecord(1, parse_sizes("4"), text, 0.0)
    )
    sent = pb.AppReport.FromString(protobuf_codec.report_to_wire(hello).SerializeToString()).hello
    assert sent.request.reason == sent.saving.reason == sanitize_text(text)


def test_reports_wait_for_the_next_stream_and_answers_do_not(
    server: Server, open_stream: Open
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = [f"127.0.0.1:{nobody.getsockname()[1]}"]
    stream, _ = open_stream(lambda: address[0])
    stream.send(NegotiationMessage(Template(1, 7, 0, Verb.WITHDRAW)))
    stream.send(Withdrawn(1))
    address[0] = server.address
    assert server.next("withdrawn").withdrawn.resize == 1
    assert server.reports["answer"].empty()


def test_channels_ask_no_more_often_than_the_server_allows() -> None:
    from pliant.server.rpc import grpc_server

    mine, allowed = dict(grpc_channel_options.channel_options()), dict(grpc_server.OPTIONS)
    assert mine["grpc.keepalive_time_ms"] > allowed["grpc.http2.min_ping_interval_without_data_ms"]
    assert isinstance(grpc.insecure_channel("127.0.0.1:1", list(mine.items())), grpc.Channel)


def test_an_order_of_the_controller_that_fails_does_not_end_the_thread(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = socket.socketpair()
    handled: list[int] = []

    def handle(message: dict[str, int]) -> None:
        handled.append(10 // message["number"])

    thread = serve(JsonLines(ours), handle)
    theirs.sendall(b'{"number": 0}\n[]\n{"number": 5}\n')
    wait_until(lambda: handled == [2])
    theirs.close()
    thread.join(40)
    assert not thread.is_alive()
    ours.close()
    assert "ZeroDivisionError" in capfd.readouterr().err

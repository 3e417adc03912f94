"""The page of metrics is served whatever other clients do."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection

import pytest

from pliant.client.metrics import http_endpoint
from pliant.client.metrics.http_endpoint import Endpoint
from testkit import wait_until


@contextmanager
def endpoint(
    text: Callable[[], bytes] = lambda: b"pliant_up 1.0\n", timeout_s: float = 60.0
) -> Iterator[int]:
    """Serve in a thread; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    served = Endpoint(text, timeout_s).serve(listener, stop)
    thread = threading.Thread(target=loop.run_until_complete, args=(served,))
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        listener.close()
        loop.close()


def ask(port: int, path: str = "/metrics", method: str = "GET") -> tuple[int, bytes]:
    """Send a request; return status and body."""
    link = HTTPConnection("127.0.0.1", port, timeout=60)
    link.request(method, path)
    with link.getresponse() as answer:
        return answer.status, answer.read()


def test_only_the_page_is_served() -> None:
    with endpoint() as port:
        assert ask(port) == (200, b"pliant_up 1.0\n")
        assert ask(port, "/metrics?x=1") == (200, b"pliant_up 1.0\n")
        assert ask(port, method="HEAD") == (200, b"")
        assert ask(port, "/")[0] == 404
        assert ask(port, method="POST")[0] == 405


def test_silent_and_incomplete_clients_do_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "MAX_CONNECTIONS", 5)
    with endpoint() as port:
        silent = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(12)]
        for each in silent:
            with suppress(OSError):  # it was closed because newer ones came
                each.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        assert ask(port)[0] == 200
        closed = silent[0]
        with suppress(ConnectionResetError):
            assert closed.recv(1) == b""
        for each in silent:
            each.close()


def test_a_silent_client_is_disconnected() -> None:
    with (
        endpoint(timeout_s=0.2) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as silent,
        suppress(ConnectionResetError),
    ):
        assert silent.recv(1) == b""


def test_a_client_that_does_not_read_is_disconnected() -> None:
    with endpoint(lambda: b"x" * (64 << 20), timeout_s=1.0) as port:
        slow = socket.create_connection(("127.0.0.1", port), timeout=60)
        slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert ask(port, method="HEAD")[0] == 200
        got = b"-"
        with suppress(ConnectionResetError):
            wait_until(lambda: slow.send(b"x") == 0, what="the end of the connection")
            got = slow.recv(1)
        assert got in (b"-", b"H")
        slow.close()


def test_a_request_that_is_too_long_is_refused() -> None:
    with endpoint() as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        with suppress(OSError):
            client.sendall(b"GET /" + b"x" * (64 << 10) + b" HTTP/1.1\r\n\r\n")
            assert client.recv(1) == b""
        assert ask(port)[0] == 200


def test_requests_at_the_same_time_share_one_answer() -> None:
    release, calls = threading.Event(), list[int]()

    def text() -> bytes:
        calls.append(1)
        release.wait(60)
        return b"x"

    with endpoint(text) as port:
        answers: list[int] = []
        threads = [threading.Thread(target=lambda: answers.append(ask(port)[0])) for _ in range(20)]
        for thread in threads:
            thread.start()
        assert ask(port, "/")[0] == 404  # while the page is being made
        release.set()
        for thread in threads:
            thread.join()
        assert answers == [200] * 20
        assert len(calls) < 20

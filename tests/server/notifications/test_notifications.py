"""Messages about events of jobs, from a real server to a real web service and a mail server."""

from __future__ import annotations

import json
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pliant.server.notifications import delivery
from pliant.server.notifications.delivery import DeliveryError, deliver
from pliant.server.support.notify_rules import parse_notify_rules, parse_receiver
from serverkit import Server, job_request
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

MESSAGE = {"id": "c-1", "event": "end", "job": 1, "name": "a", "state": "COMPLETED", "size": 1}


class WebService(ThreadingHTTPServer):
    """A web service that keeps what it gets; `status` is its answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.location = 200, ""
        self.requests: list[dict[str, Any]] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: WebService

    def do_POST(self) -> None:  # the name that the base class calls
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append({"path": self.path, **body})
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class MailServer(socketserver.ThreadingTCPServer):
    """A mail server that keeps recipients and mails; it refuses the recipient ``nobody``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _MailHandler)
        self.mails: list[tuple[str, str]] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _MailHandler(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self._say("220 ready")
        recipient = ""
        while line := self.rfile.readline().decode().strip():
            verb = line[:4].upper()
            if verb == "RCPT":
                recipient = line.partition("<")[2].partition(">")[0]
            if verb == "DATA":
                self._say("354 send")
                text = b"".join(iter(self.rfile.readline, b".\r\n")).decode()
                self.server.mails.append((recipient, text))
            if verb == "QUIT":
                self._say("221 bye")
                return
            self._say("550 no" if verb == "RCPT" and "nobody" in recipient else "250 ok")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(name="web")
def _web() -> Iterator[WebService]:
    web = WebService()
    with serving(web):
        yield web


@pytest.fixture(name="mail")
def _mail() -> Iterator[MailServer]:
    mail = MailServer()
    with serving(mail):
        yield mail


def rules(web: WebService | None = None, mail: MailServer | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"hosts": [web.host] if web else []}
    if mail:
        found |= {"mail_domains": ["example.org"], "smtp": mail.host, "sender": "p@example.org"}
    return found


def test_a_killed_server_sends_its_messages_after_the_restart(
    make_server: Callable[..., Server], web: WebService, mail: MailServer
) -> None:
    web.status = 503
    server = make_server(notify=rules(web, mail)).start()
    url = f"http://{web.host}/hook?a=1"
    with closing(server.controller().welcome()) as node, server.user() as user:
        job = user.submit(name="x\u2028y", notify=url, notify_on="start,fail")
        mailed = user.submit(name="mailed", notify="ann@example.org")
        for _ in (job, mailed):
            start = node.find("start_world")
            node.ready(start)
            node.exit(start, code=3 if start.job == job else 0)
        wait_until(lambda: web.requests, what="the first attempt")
        wait_until(lambda: mail.mails, what="the mail")
        wait_until(lambda: len(waiting(server)) == 2, what="two messages that wait")
    server.stop(signal.SIGKILL)
    web.status = 200
    web.requests.clear()
    server.start()
    wait_until(lambda: not waiting(server), what="all deliveries")
    first, second = web.requests
    assert (first["event"], first["path"], first["name"]) == ("start", "/hook?a=1", "x y")
    assert (second["event"], second["state"], second["exit_code"]) == ("fail", "FAILED", 3)
    assert (first["job"], first["id"] == second["id"]) == (job, False)
    ((recipient, text),) = mail.mails
    assert recipient == "ann@example.org"
    assert f"Subject: Pliant job {mailed} (mailed) ended (COMPLETED)" in text
    assert "Auto-Submitted: auto-generated" in text


def test_an_array_sends_one_message_unless_its_tasks_are_chosen(
    make_server: Callable[..., Server], web: WebService
) -> None:
    server = make_server(notify=rules(web)).start()
    url = f"http://{web.host}/"
    with closing(server.controller().welcome()) as node, server.user() as user:
        whole = user.submit(array="1-2", notify=url, notify_on="start,fail")
        each = user.submit(array="1-2", notify=url, notify_on="fail,tasks")
        for code in (0, 3, 0, 3):
            start = node.find("start_world")
            node.ready(start)
            node.exit(start, code=code)
        wait_until(lambda: len(web.requests) >= 3, what="all messages")
    found = sorted((told["event"], told["job"], told.get("array_task")) for told in web.requests)
    assert found == [("fail", whole, None), ("fail", found[1][1], 2), ("start", whole, None)]
    assert each < found[1][1]


def waiting(server: Server) -> list[Any]:
    """Return the messages that wait, as the server has stored them."""
    stored: dict[str, Any] = json.loads((server.state / "notifications.json").read_text())
    return list(stored["waiting"])


def test_only_listed_receivers_are_accepted(
    make_server: Callable[..., Server], web: WebService
) -> None:
    server = make_server(notify=rules(web)).start()
    with closing(server.controller().welcome()), server.user() as user:
        for receiver in ("http://127.0.0.1:1/", "ann@example.org"):
            error = user.ask("submit", job=job_request(notify=receiver))["error"]
            assert (error["kind"], error["field"]) == ("refused", "notify")
        error = user.ask("submit", job=job_request(notify_on="end"))["error"]
        assert error["field"] == "notify_on"


@pytest.mark.parametrize(("status", "may_repeat"), [(500, True), (429, True), (404, False)])
def test_errors_of_a_web_service(web: WebService, status: int, may_repeat: bool) -> None:
    web.status = status
    with pytest.raises(DeliveryError, match=str(status)) as failed:
        deliver(parse_receiver(f"http://{web.host}/"), MESSAGE, parse_notify_rules(rules(web)))
    assert failed.value.may_repeat == may_repeat


def test_a_redirection_is_not_followed(web: WebService) -> None:
    web.status, web.location = 307, f"http://{web.host}/other"
    with pytest.raises(DeliveryError, match="307") as failed:
        deliver(parse_receiver(f"http://{web.host}/a"), MESSAGE, parse_notify_rules(rules(web)))
    assert not failed.value.may_repeat
    assert [each["path"] for each in web.requests] == ["/a"]


def test_a_receiver_that_is_no_longer_listed_is_not_told(web: WebService) -> None:
    with pytest.raises(DeliveryError, match=r"notify\.hosts") as failed:
        deliver(parse_receiver(f"http://{web.host}/"), MESSAGE, parse_notify_rules({}))
    assert (failed.value.may_repeat, web.requests) == (False, [])


def test_a_refused_address_is_not_tried_again(mail: MailServer) -> None:
    settings = parse_notify_rules(rules(mail=mail))
    with pytest.raises(DeliveryError, match="550") as failed:
        deliver(parse_receiver("nobody@example.org"), MESSAGE, settings)
    assert not failed.value.may_repeat


def test_a_service_that_never_finishes_its_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service that sends a byte now and then would pass each limit of a single step."""
    monkeypatch.setattr(delivery, "TOTAL_S", 0.5)
    ended = threading.Event()

    class Slow(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"HTTP/1.1 ")
            while not ended.wait(0.05):
                try:
                    self.request.sendall(b"2")
                except OSError:
                    return

    service = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow)
    service.daemon_threads = True
    with serving(service):
        host = f"127.0.0.1:{service.server_address[1]}"
        with pytest.raises(DeliveryError) as failed:
            deliver(
                parse_receiver(f"http://{host}/"), MESSAGE, parse_notify_rules({"hosts": [host]})
            )
        ended.set()
    assert failed.value.may_repeat

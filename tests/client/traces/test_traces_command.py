"""``pliant traces``, from events to a collector that decodes OTLP."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pliant.client.client_errors import LostServerError
from pliant.client.traces.job_spans import JobStarts
from pliant.client.traces.traces_command import follow, main
from testkit import wait_until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from pliant.client.traces.exporter import TraceExporter


class Collector:
    """A collector that keeps the spans that it gets."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.service = ""
        self.endpoint = ""

    def take(self, body: bytes) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            values = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.service = values["service.name"]
            for scope in resource.scope_spans:
                self.spans += scope.spans


@contextmanager
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_packed = self.headers.get("Content-Encoding") == "gzip"
            found.take(gzip.decompress(body) if is_packed else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Link:
    """A connection whose subscription yields given messages, then loses the server."""

    def __init__(self, *rounds: list[dict[str, Any]]) -> None:
        self._rounds = list(rounds)
        self.asked: list[dict[str, Any]] = []
        self.stop = threading.Event()

    def watch(self, **fields: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(fields)
        yield from self._rounds.pop(0)
        if not self._rounds:
            self.stop.set()
        raise LostServerError("it left")


def message(seq: int, *events: tuple[str, float], now: float) -> dict[str, Any]:
    lines = [{"kind": kind, "time": at, "job": 7, "data": {"name": "x"}} for kind, at in events]
    return {"seq": seq, "now": now, "events": lines}


def test_a_collector_gets_one_trace_for_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.client.traces.traces_command._RETRY_S", 0.01)
    now = time.time()
    link = Link(
        [
            message(1, ("job.submitted", now - 50), now=now),
            message(2, ("job.started", now + 1), ("job.running", now + 2), now=now + 2),
        ],
        [message(3, ("application.registered", now + 4), now=now + 4)],
    )
    with collector() as found:
        exporter = TraceExporter(found.endpoint)
        follow(link, link.stop, JobStarts(), exporter.export)  # type: ignore[arg-type]
        exporter.close()
        wait_until(lambda: len(found.spans) == 4, what="the spans")
    assert [fields.get("after") for fields in link.asked] == [None, 2]
    assert found.service == "pliant"
    assert len({span.trace_id for span in found.spans}) == 1
    (root,) = (span for span in found.spans if not span.parent_span_id)
    parts = sorted(
        (span for span in found.spans if span is not root), key=lambda s: s.start_time_unix_nano
    )
    assert {span.parent_span_id for span in parts} == {root.span_id}
    names = [span.name for span in parts]
    assert names == ["wait for processors", "start processes", "initialize MPI"]
    assert [s.end_time_unix_nano for s in parts[:-1]] == [s.start_time_unix_nano for s in parts[1:]]
    assert root.start_time_unix_nano == parts[0].start_time_unix_nano == int((now - 50) * 1e9)
    assert root.end_time_unix_nano == int((now + 4) * 1e9)
    values = {each.key: each.value for each in root.attributes}
    assert values["pliant.job.id"].int_value == 7
    assert values["pliant.job.name"].string_value == "x"


def test_earlier_starts_are_not_sent_again() -> None:
    now = time.time()
    moments = ("job.submitted", "job.started", "job.running", "application.registered")
    link = Link([message(4, *((kind, now - 100) for kind in moments), now=now)])
    sent: list[object] = []
    follow(link, link.stop, JobStarts(), sent.append)  # type: ignore[arg-type]
    assert sent == []


@pytest.mark.parametrize("text", ["", "collector", "ftp://x/", "http://", "http://x:99999/"])
def test_a_wrong_endpoint_is_refused(text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--endpoint", text])
    assert ended.value.code == 2

"""Sends the starts of jobs as traces to a collector, with OTLP over HTTP."""

from __future__ import annotations

import importlib.metadata

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode

from pliant.client.traces.job_spans import JobStart

#: Spans that wait for the collector. Further ones are dropped.
MAX_WAITING = 20_000
#: Spans are sent at least this often, milliseconds.
SEND_MS = 1000


class TraceExporter:
    """Makes one trace for each start of a job.

    Args:
        endpoint: the address of the collector.
    """

    def __init__(self, endpoint: str) -> None:
        version = importlib.metadata.version("pliant")
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "pliant", "service.version": version})
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                OTLPSpanExporter(endpoint=endpoint, timeout=10),
                max_queue_size=MAX_WAITING,
                schedule_delay_millis=SEND_MS,
            )
        )
        self._tracer = self._provider.get_tracer("pliant", version)

    def export(self, start: JobStart) -> None:
        """Make the trace of a job's start, and queue it to be sent to the collector."""
        root = self._tracer.start_span(
            "start of a job",
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            start_time=_nanoseconds(start.queued),
            attributes=start.attributes,
        )
        inside = trace.set_span_in_context(root)
        for part in start.spans():
            span = self._tracer.start_span(
                part.name, context=inside, start_time=_nanoseconds(part.start)
            )
            span.end(_nanoseconds(part.end))
        if start.failed:
            root.set_status(Status(StatusCode.ERROR, start.failed))
        root.end(_nanoseconds(start.end))

    def close(self) -> None:
        """Send the waiting spans, and end the thread."""
        self._provider.shutdown()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)

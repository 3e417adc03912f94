"""``pliant traces``: send a trace of the start of each job to an OpenTelemetry collector."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pliant.client.client_errors import ClientError, RequestError
from pliant.client.paths import server_dir
from pliant.client.terminal.output import Parser, run_command

if TYPE_CHECKING:
    from pliant.client.connection import Connection
    from pliant.client.traces.job_spans import JobStart, JobStarts

PROG = "pliant traces"
ENDPOINT = "http://127.0.0.1:4318/v1/traces"
#: Events of this time before the start tell since when jobs wait, seconds.
PAST_S = 24 * 3600.0
_RETRY_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Send traces of job starts to an OpenTelemetry collector; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Send a trace of the start of each job, from its submission to its first "
        "instruction, to an OpenTelemetry collector.",
        epilog="exit codes: 0 stopped by a signal, 1 it cannot send, 2 wrong usage",
    )
    parser.add_argument(
        "--endpoint",
        type=_endpoint,
        default=ENDPOINT,
        metavar="URL",
        help=f"where the collector takes OTLP over HTTP ({ENDPOINT})",
    )
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _run(options.endpoint))


def _endpoint(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        raise argparse.ArgumentTypeError(f"{text!r}: write an address as in {ENDPOINT}")
    return text


def _run(endpoint: str) -> int:
    import logging

    try:
        from pliant.client.traces.exporter import TraceExporter
    except ModuleNotFoundError as error:
        raise ClientError(
            f"the module {error.name} is missing: pip install 'pliant[traces]'"
        ) from None
    from pliant.client.connection import Connection
    from pliant.client.traces.job_spans import JobStarts
    from pliant.protos.daemons.log_handlers import make_log_handler

    logging.basicConfig(
        handlers=[make_log_handler("pliant-traces")],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    stop, link = threading.Event(), Connection(server_dir())

    def end(*_: object) -> None:
        stop.set()
        link.interrupt()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    exporter = TraceExporter(endpoint)
    logging.info("traces are sent to %s", endpoint)
    try:
        follow(link, stop, JobStarts(), exporter.export)
    finally:
        exporter.close()
    return 0


def follow(
    link: Connection,
    stop: threading.Event,
    starts: JobStarts,
    export: Callable[[JobStart], None],
) -> None:
    """Follow the server's events until ``stop`` is set; subscribe again if the connection ends.

    Starts that completed before this call are not exported again.

    Raises:
        RequestError: the server refuses the subscription.
    """
    import logging

    began = time.time()
    position: dict[str, Any] = {"since": began - PAST_S}
    is_away = False
    while not stop.is_set():
        try:
            for message in link.watch(events_only=True, **position):
                position, is_away = {"after": message["seq"]}, False
                _apply(message, starts, began, export)
                if stop.is_set():
                    return
        except RequestError:
            raise
        except ClientError as error:
            if not stop.is_set() and not is_away:
                logging.warning("no events: %s", error)
            is_away = True
            stop.wait(_RETRY_S)


def _apply(
    message: Mapping[str, Any],
    starts: JobStarts,
    began: float,
    export: Callable[[JobStart], None],
) -> None:
    found = [starts.apply(event) for event in message.get("events", ())]
    for start in (*found, *starts.overdue(float(message["now"]))):
        if start is not None and start.end >= began:
            export(start)

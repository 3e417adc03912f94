"""``pliant metrics``: offer metrics of the cluster to Prometheus."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import signal
import socket
from collections.abc import Sequence
from importlib.resources import files

from pliant.client.client_errors import ClientError
from pliant.client.paths import server_dir
from pliant.client.terminal.number_arguments import seconds
from pliant.client.terminal.output import Parser, print_text, run_command

PROG = "pliant metrics"
ADDRESS = "127.0.0.1"
PORT = 9643
#: The server is not asked again within this time, seconds.
INTERVAL_S = 5.0
#: Limit of a request to the server; Prometheus waits for 10 s by default. Seconds.
REQUEST_S = 8.0
#: Files for Grafana and Prometheus.
FILES = {"board": "grafana-board.json", "alerts": "prometheus-alerts.yaml"}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve metrics for Prometheus until a signal arrives; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Serve metrics of the cluster for Prometheus, at http://ADDRESS:PORT/metrics.",
        epilog="exit codes: 0 stopped by a signal, 1 it cannot serve, 2 wrong usage",
    )
    parser.add_argument(
        "--address", default=ADDRESS, help=f"address of this host to listen on ({ADDRESS})"
    )
    parser.add_argument("--port", type=_port, default=PORT, help=f"port ({PORT}); 0: a free one")
    parser.add_argument(
        "--interval",
        type=seconds,
        default=INTERVAL_S,
        metavar="S",
        help=f"ask the server at most once in this time, seconds ({INTERVAL_S:g})",
    )
    parser.add_argument(
        "--print",
        choices=FILES,
        metavar="FILE",
        help="print a file and exit: board (a Grafana dashboard) or alerts (rules for Prometheus)",
    )
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _run(options))


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text} is not a port: write a number up to 65535")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    if options.print:
        file = files(__package__) / "files" / FILES[options.print]
        print_text(file.read_text(encoding="utf-8").rstrip("\n"))
        return 0
    return _serve(options)


def _serve(options: argparse.Namespace) -> int:
    import asyncio
    import logging

    try:
        from pliant.client.metrics.families import exposition
    except ModuleNotFoundError as error:
        raise ClientError(
            f"the module {error.name} is missing: pip install 'pliant[metrics]'"
        ) from None
    from pliant.client.connection import Connection
    from pliant.client.metrics.http_endpoint import Endpoint
    from pliant.client.metrics.scrape_cache import ScrapeCache
    from pliant.protos.daemons.log_handlers import make_log_handler
    from pliant.protos.daemons.service_manager import ServiceManager

    logging.basicConfig(
        handlers=[make_log_handler("pliant-metrics")],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    link = Connection(server_dir(), timeout_s=REQUEST_S)
    cache = ScrapeCache(
        lambda: link.request("metrics"), exposition, options.interval, logging.warning
    )
    manager = ServiceManager.from_environment()

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        beats = asyncio.create_task(manager.keep_alive())
        with _listen(options.address, options.port) as listener:
            host, port = listener.getsockname()[:2]
            where = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
            logging.info("metrics are at %s", where)
            manager.ready(f"metrics are at {where}")
            await Endpoint(cache.text).serve(listener, stop)
        manager.stopping()
        beats.cancel()
        link.interrupt()

    asyncio.run(serve())
    return 0


def _listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address.

    Raises:
        ClientError: the address is not of this host, or the port is taken.
    """
    listener = None
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(128)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise ClientError(
            f"cannot listen on {address} port {port}: {why}; name another --address or --port"
        ) from None
    return listener

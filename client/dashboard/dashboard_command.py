"""``pliant dashboard``: serve the live page on this machine."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pliant.client.client_errors import ClientError
from pliant.client.paths import server_dir
from pliant.client.terminal.output import Parser, print_text, run_command

PROG = "pliant dashboard"
#: The port if there is no option. If it is taken and there is no option, a free one is used.
PORT = 8642
#: With ``--with-server``, a server that is away for longer than this does not return, seconds.
LOST_S = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Show a cluster live in a browser until Ctrl-C; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Show jobs, nodes and negotiations live in a browser, on this machine.",
        epilog="The addresses that it prints contain a secret: whoever has the first one may act\n"
        "as you. To use it from another machine: ssh -L 8642:localhost:8642 HOST\n"
        "exit codes: 0 done, 1 it cannot serve, 2 wrong usage",
    )
    parser.add_argument("--port", type=_port, help=f"port of the loopback interface ({PORT})")
    parser.add_argument("--read-only", action="store_true", help="no actions, only looking")
    parser.add_argument("--open", action="store_true", help="open a browser")
    parser.add_argument(
        "--with-server", action="store_true", help="end when the server has been gone for 10 s"
    )
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _serve(options))


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text} is not a port: write a number up to 65535")
    return int(text)


def _serve(options: argparse.Namespace) -> int:
    try:
        import uvicorn

        from pliant.client.dashboard.feed import Feed
        from pliant.client.dashboard.server_requests import ServerRequests
        from pliant.client.dashboard.sessions import Sessions
        from pliant.client.dashboard.web_app import Dashboard
    except ModuleNotFoundError as error:
        raise ClientError(
            f"the module {error.name} is missing: pip install 'pliant[dashboard]'"
        ) from None
    directory = server_dir()
    listener = _listen(options.port)
    sessions, feed = Sessions(read_only=options.read_only), Feed(directory)
    app = Dashboard(feed, ServerRequests(directory), sessions).app()

    stack = ExitStack()

    class Server(uvicorn.Server):
        """A web server that closes the streams to browsers before it stops.

        Otherwise it would wait for these streams, which do not end.
        """

        async def on_tick(self, counter: int) -> bool:
            if options.with_server and feed.lost_for_s > LOST_S:
                return True
            return await super().on_tick(counter)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            stack.close()  # after this, the server ends the process with the signal that it got
            feed.close_streams()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=3, server_header=False
    )
    port = listener.getsockname()[1]
    addresses = {
        role: f"http://127.0.0.1:{port}/#login={token}" for role, token in sessions.tokens.items()
    }
    if "operator" in addresses:
        print_text(f"dashboard: {addresses['operator']}")
    print_text(f"to share, without actions: {addresses['viewer']}")
    sys.stdout.flush()
    with stack:
        if options.open:
            stack.enter_context(opened(addresses.get("operator", addresses["viewer"])))
        Server(config).run(sockets=[listener])
    return 0


@contextmanager
def opened(address: str) -> Iterator[None]:
    """Open an address in a browser; the file for this is kept until the context ends.

    The browser gets the name of a private file that leads to the address, because other accounts of
    the host can read the arguments of processes, and the address contains a key.

    A process of its own opens the browser, because some browsers are waited for, and the page must
    be served meanwhile. The browser does not get the folders of the cluster in its environment: it
    outlives the cluster, and is not one of its processes.
    """
    with tempfile.TemporaryDirectory(prefix="pliant-dashboard-") as folder:
        page = Path(folder, "open.html")
        page.write_text(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0;url={address}">\n'
        )
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PLIANT_")}
        opener = subprocess.Popen(
            [sys.executable, "-P", "-m", "webbrowser", page.as_uri()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        threading.Thread(target=opener.wait, daemon=True).start()  # leaves no zombie
        yield


def _listen(wanted: int | None) -> socket.socket:
    """Return a socket that listens on the loopback interface, at the ``wanted`` port.

    If ``wanted`` is None, this is the usual port or, if that is taken, any free one.

    Raises:
        ClientError: the wanted port is taken.
    """
    for port in (PORT, 0) if wanted is None else (wanted,):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            listener.close()
            if port != PORT or wanted is not None:
                raise ClientError(
                    f"--port {port}: {(error.strerror or str(error)).lower()}; name another port"
                ) from None
            continue
        listener.listen(128)
        return listener
    raise AssertionError("a free port was refused")

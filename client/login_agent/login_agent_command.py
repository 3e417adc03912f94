"""``pliant login-agent``: let the users of this host use the server of the cluster."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import fcntl
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from pliant.client.client_errors import ClientError
from pliant.client.paths import SOCKET, state_dir
from pliant.client.site_settings import USERS_DIR
from pliant.client.terminal.output import Parser, run_command

PROG = "pliant login-agent"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent of a login host, which passes requests of users on; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Let the users of this host use the server of the cluster on another host.",
        epilog="exit codes: 0 stopped by a signal, 1 it could not start, 2 wrong usage",
    )
    parser.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="address of the server for login hosts (as learned when the host joined); may be "
        "repeated",
    )
    parser.add_argument(
        "--users-dir", default=USERS_DIR, metavar="DIR", help=f"folder of the socket ({USERS_DIR})"
    )
    parser.add_argument(
        "--identity", metavar="DIR", help="folder of key and certificate (in the state folder)"
    )
    parser.add_argument("--check", action="store_true", help="check key and certificate, and leave")
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    import asyncio
    import logging

    from pliant.client.login_agent.server_link import ServerLinks
    from pliant.core.support.base_error import PliantError
    from pliant.protos.daemons.log_handlers import make_log_handler
    from pliant.protos.daemons.users_socket_folder import prepare_users_folder
    from pliant.protos.identity.node_files import DIRECTORY

    handler = make_log_handler("pliant-login-agent")
    logging.basicConfig(
        handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    directory = Path(options.identity or os.path.join(state_dir(), DIRECTORY)).absolute()
    folder = Path(options.users_dir).absolute()
    try:
        links = ServerLinks(directory, options.server)
        if options.check:
            return 0
        prepare_users_folder(folder)
    except PliantError as error:
        raise ClientError(str(error)) from None
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ClientError(f"another login agent serves the users' socket in {folder}") from None
    try:
        asyncio.run(_serve(links, directory, folder / SOCKET))
    finally:
        os.close(lock)
    return 0


async def _serve(links: object, directory: Path, path: Path) -> None:
    import asyncio
    import logging

    from pliant.client.login_agent.relay import UserRequestRelay
    from pliant.client.login_agent.renewal import keep_renewed
    from pliant.client.login_agent.server_link import ServerLinks
    from pliant.protos.daemons.service_manager import ServiceManager
    from pliant.protos.daemons.sockets import listen

    assert isinstance(links, ServerLinks)
    manager = ServiceManager.from_environment()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with listen(path, 0o666) as listener:
        logging.info("users of this host may connect: %s; the server is %s", path, links.servers)
        tasks = [
            asyncio.create_task(keep_renewed(directory, links)),
            asyncio.create_task(manager.keep_alive()),
        ]
        manager.ready(f"serving {path}, the server is {links.servers}")
        try:
            await UserRequestRelay(links).serve(listener, stop)
        finally:
            manager.stopping()
            for task in tasks:
                task.cancel()
            path.unlink(missing_ok=True)

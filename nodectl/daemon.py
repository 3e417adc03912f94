"""The command ``pliant nodectl``: check the settings, lock the node, run the controller."""

from __future__ import annotations

import argparse
import fcntl
import getpass
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.core.support.base_error import PliantError
from pliant.core.support.command_line import CommandParser
from pliant.core.support.imports_without_gc import imports_without_gc
from pliant.faults import identify
from pliant.protos.daemons.atomic_files import describe_unusable
from pliant.protos.daemons.log_handlers import LogHandler, make_log_handler, use_json
from pliant.protos.daemons.private_paths import open_private
from pliant.protos.daemons.service_manager import ServiceManager
from pliant.protos.identity.grpc_tls import require_tls_1_3
from pliant.protos.identity.identity_errors import IdentityError
from pliant.protos.versions import ProtocolError

if TYPE_CHECKING:
    from pliant.nodectl.certified.joined_node import JoinedNode
    from pliant.nodectl.controller.controller import Controller
    from pliant.nodectl.controller.server_connection.server_links import ServerLink
    from pliant.nodectl.settings import ControllerSettings

logger = logging.getLogger("pliant.nodectl")

_OK, _FAILED, _USAGE = 0, 1, 2
#: The directory in the state folder with the identity of a node that has joined a cluster
#: (`pliant.protos.identity.node_files`, which takes long to import).
IDENTITY_DIRECTORY = "node-identity"


class BusyError(PliantError, code="node-busy"):
    """Another controller is running for this node."""


def main(argv: list[str]) -> int:
    """Run the controller of a node.

    Returns:
        0 after an orderly stop, 1 if the controller could not start or was refused, 2 for wrong
        usage or settings.
    """
    options = vars(_parser().parse_args(argv))
    # After the parser, so that --help does not wait for YAML and msgspec.
    with imports_without_gc():
        from pliant.nodectl.settings import ControllerSettingsError, check_interface, load

    path, check = options.pop("config"), options.pop("check")
    end_jobs = options.pop("end_jobs")
    given = {name: value for name, value in options.items() if value is not None}

    def read() -> ControllerSettings:
        joined = _joined_node()
        settings = load(path, given, joined.defaults() if joined else None)
        if joined:
            joined.check(settings)
        if settings.transport == "ofi" and not end_jobs:
            check_interface(settings.interface)
        return settings

    try:
        settings = read()
    except ControllerSettingsError as error:
        print(f"pliant nodectl: {f'{path}: ' if path else ''}{error}", file=sys.stderr)
        return _USAGE
    except IdentityError as error:
        print(f"pliant nodectl: {error}", file=sys.stderr)
        return _FAILED
    except OSError as error:
        print(f"pliant nodectl: {describe_unusable(error)}", file=sys.stderr)
        return _FAILED
    if check:
        kind = "spare node" if settings.spare else "node"
        print(f"{kind} {settings.name}: {settings.slots} slots, settings are right")
        return _OK
    handler = make_log_handler(
        "pliant-nodectl", PLIANT_NODE=settings.name, PLIANT_CLUSTER=settings.cluster
    )
    logging.basicConfig(
        handlers=[handler],
        level=settings.log_level.upper(),
        format=f"%(asctime)s %(levelname)s nodectl[{settings.name}] %(message)s",
    )
    if settings.log_format == "json":
        use_json(handler, daemon="pliant-nodectl", node=settings.name)
    if end_jobs:
        return _with_lock(settings, _end_jobs)
    manager = ServiceManager.from_environment()
    hangup = Hangup(path, read, handler, manager)
    return _with_lock(settings, partial(_run, hangup=hangup, manager=manager))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="pliant nodectl", description="Start, watch and end processes of jobs on this node."
    )
    parser.add_argument("--config", metavar="FILE", help="settings, as YAML")
    parser.add_argument("--check", action="store_true", help="check the settings and exit")
    parser.add_argument(
        "--end-jobs",
        action="store_true",
        help="end what runs of jobs on this node, whose controller is not running, and exit",
    )
    parser.add_argument("--name", help="of this node (default: the host's)")
    parser.add_argument("--slots", type=_parse_number, help="processes of jobs that run at a time")
    parser.add_argument("--memory", metavar="SIZE", help="that jobs may use, as in 64G")
    parser.add_argument(
        "--gres", type=_parse_gres, metavar="NAME:N,...", help="devices that jobs may ask for"
    )
    parser.add_argument(
        "--properties",
        type=lambda text: text.split(","),
        metavar="NAME,...",
        help="that jobs may require",
    )
    parser.add_argument("--server", metavar="ADDRESS", help="of the server")
    parser.add_argument("--address-file", metavar="FILE", help="holds the server's address")
    parser.add_argument("--secret-file", metavar="FILE", help="holds the secret of the cluster")
    parser.add_argument("--address", help="where other nodes reach this one")
    parser.add_argument("--cluster", help="to which this node belongs")
    parser.add_argument(
        "--spare",
        action=argparse.BooleanOptionalAction,
        help="it waits, and takes the place of a node of its cluster that is lost",
    )
    parser.add_argument(
        "--joins-drained",
        action=argparse.BooleanOptionalAction,
        help="as a new node it takes no work until it is resumed",
    )
    parser.add_argument("--transport", choices=["ofi", "ucx"], help="of MPI messages")
    parser.add_argument("--interface", help="network interface of MPI messages")
    parser.add_argument("--cpus", metavar="LIST", help="that jobs may use, as in 0-3,8")
    parser.add_argument(
        "--bind",
        action=argparse.BooleanOptionalAction,
        help="bind each rank to the CPUs of its slot (default: yes)",
    )
    parser.add_argument("--most-processes", type=_parse_number, help="of a job on this node")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", choices=["text", "json"], help="of the log (text)")
    return parser


def _parse_gres(text: str) -> dict[str, int]:
    from pliant.core.values.node_needs import parse_gres

    try:
        return parse_gres(text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _joined_node() -> JoinedNode | None:
    """Return this host's identity in a cluster; None if it has joined no cluster.

    Raises:
        StoredIdentityError, UntrustedPathError, OSError: the identity cannot be used.
    """
    from pliant.nodectl.settings import state_folder

    directory = state_folder() / IDENTITY_DIRECTORY
    if not directory.is_dir():
        return None
    from pliant.nodectl.certified.joined_node import JoinedNode

    return JoinedNode(directory)


def _parse_number(text: str) -> int:
    """Convert a text of digits to a number; unlike `int`, refuse ``1_0`` and blanks."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"{text!r} is no number; write digits, as in 12")
    return int(text)


def _with_lock(
    settings: ControllerSettings,
    work: Callable[[ControllerSettings, Path, Path], Coroutine[None, None, int]],
) -> int:
    """Lock the node's state and run folders, and call ``work`` with the settings and both folders.

    Returns:
        The exit status of ``work``; 1 if the folders cannot be used or another controller has them.
    """
    import asyncio

    from pliant.nodectl.settings import run_folder, state_folder

    state = state_folder() / f"node-{settings.name}"
    run = run_folder()
    identify(node=settings.name)
    try:
        for folder in (state, run):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(open_private(state.parent, shared=True))
        os.close(open_private(run))
        with _exclusive_lock(state, settings.name), _pid_file(run / f"node-{settings.name}.pid"):
            return asyncio.run(work(settings, state, run))
    except BusyError as error:
        logger.error("%s", error)
    except OSError as error:
        logger.error("%s", describe_unusable(error))
    return _FAILED


async def _end_jobs(settings: ControllerSettings, state: Path, _run: Path) -> int:
    from pliant.nodectl.controller.spool_recovery import end_all_worlds
    from pliant.nodectl.controller.users.user_worlds import find_helper
    from pliant.nodectl.controller.world_state import spool_folder

    folder = spool_folder(state)
    try:
        helper = find_helper(settings)
        return _FAILED if folder.is_dir() and await end_all_worlds(folder, helper) else _OK
    except ProtocolError as error:
        logger.error("nothing is ended: %s", error)
        return _FAILED


class Hangup:
    """Handles SIGHUP: reopens the log file and applies changed settings."""

    def __init__(
        self,
        path: str | None,
        read: Callable[[], ControllerSettings],
        handler: LogHandler,
        manager: ServiceManager,
    ) -> None:
        self._path, self._read, self._handler = path, read, handler
        self._manager = manager

    def handle(self, controller: Controller) -> None:
        """Reopen the log and apply settings that need no restart; ignore invalid settings."""
        self._manager.reloading()
        self._apply(controller)
        self._manager.ready("serving")

    def _apply(self, controller: Controller) -> None:
        from pliant.nodectl.settings import ControllerSettingsError

        self._handler.file.reopen()
        try:
            settings = self._read()
        except ControllerSettingsError as error:
            logger.error("SIGHUP: %s: %s; nothing is changed", self._path or "settings", error)
            return
        taken, others = controller.reload(settings)
        logging.getLogger().setLevel(settings.log_level.upper())
        logger.info("SIGHUP: log opened again, new settings: %s", ", ".join(taken) or "none")
        if others:
            logger.warning("SIGHUP: changed after the next start: %s", ", ".join(others))


async def _run(
    settings: ControllerSettings,
    state: Path,
    run: Path,
    *,
    hangup: Hangup,
    manager: ServiceManager,
) -> int:
    import asyncio

    # Before grpc is imported: this process never forks, and grpc's fork hooks can make it hang.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    require_tls_1_3()
    # The library would log each failed handshake, which strangers can cause at will.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with imports_without_gc():
        from pliant.nodectl.controller.controller import Controller
        from pliant.nodectl.controller.launcher_client import raise_descriptor_limit
        from pliant.nodectl.controller.server_connection.server_stream import RefusedError

    _log_user(settings)
    controller = Controller(
        settings, state, _make_link(settings, state, run), raise_descriptor_limit()
    )
    task = asyncio.create_task(controller.run(lambda: manager.ready("serving")))
    watchdog = asyncio.create_task(manager.keep_alive())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.handle, controller)
    try:
        await task
    except asyncio.CancelledError:
        logger.info("stopped; jobs go on")
        return _OK
    except RefusedError as error:
        logger.error("the server refused this node: %s", error)
        return _FAILED
    except ProtocolError as error:
        logger.error("stopped, jobs go on: %s", error)
        return _FAILED
    finally:
        watchdog.cancel()
        manager.stopping()
    return _OK


def _make_link(settings: ControllerSettings, state: Path, run: Path) -> ServerLink:
    """Return a link to the server: with a certificate if the node has one, else by secret."""
    directory = state.parent / IDENTITY_DIRECTORY
    if directory.is_dir():
        from pliant.nodectl.certified.tls_link import CertificateLink

        logger.info("cluster mode: node %s, with the certificate in %s", settings.name, directory)
        return CertificateLink(directory, settings.name, settings.server)
    from pliant.nodectl.controller.server_connection.server_links import SecretLink, server_finder

    address_file = Path(settings.address_file or run / "server.address").expanduser()
    secret = Path(settings.secret_file or state.parent / "node.secret").expanduser()
    return SecretLink(server_finder(settings.server, address_file), secret)


@contextmanager
def _exclusive_lock(state: Path, name: str) -> Iterator[None]:
    """Hold a lock on the node's state folder; the kernel releases it if this process dies."""
    with open(state / "lock", "a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise BusyError(
                f"node {name} has a controller already: process {file.read().strip()} ({state})"
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@contextmanager
def _pid_file(path: Path) -> Iterator[None]:
    from pliant.nodectl.host.procfs import ProcessIdentity

    draft = path.with_name(f".{path.name}.new")
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    draft.write_text(f"{me.pid} {me.start}\n", encoding="ascii")
    draft.rename(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _log_user(settings: ControllerSettings) -> None:
    from pliant.nodectl.controller.users.user_worlds import describe_mode, find_helper

    helper = find_helper(settings)
    if helper is None and os.geteuid() == 0:
        logger.warning("single-user mode as root: every job runs with root's rights")
    else:
        logger.info("%s", describe_mode(helper, settings.name, getpass.getuser()))

"""The command ``pliant server``: read the options, start the server, wait for a signal, stop."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.core.support.command_line import CommandParser
from pliant.core.support.imports_without_gc import imports_without_gc
from pliant.protos.daemons.atomic_files import describe_unusable, write_whole
from pliant.protos.daemons.private_paths import open_private
from pliant.protos.daemons.service_manager import ServiceManager
from pliant.protos.daemons.users_socket_folder import prepare_users_folder
from pliant.protos.identity.grpc_tls import require_tls_1_3
from pliant.server.folder_locks import AlreadyRunningError, RunLock, ServerLock, started_ticks
from pliant.server.shutdown import ShutdownPipe
from pliant.server.support.log_setup import log_to_stderr

if TYPE_CHECKING:
    from pliant.protos.daemons.log_files import LogFile
    from pliant.server.config import Config

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server of a cluster.

    Returns:
        The exit status: 0 after an orderly stop, 1 if the server could not start or a thread
        failed, 2 for wrong usage or a wrong configuration.
    """
    options = _parser().parse_args(argv)
    # After the parser, so that --help does not wait for YAML, msgspec and the core.
    with imports_without_gc():
        from pliant.server.config import ConfigError

    try:
        with imports_without_gc():
            config = _load(options)
            _check_strategy(config)
            _check_identity(config)
    except ConfigError as error:
        print(f"pliant server: {error}", file=sys.stderr)
        return 2
    if options.check:
        print("the configuration is good")
        return 0
    file = log_to_stderr(debug=config.debug, log_format=config.log_format)
    own: list[ServerLock | RunLock] = [ServerLock(config.state / "server.lock")]
    if options.recover:
        return run(config, own, _recover)
    serve = partial(_serve, read=lambda: _load(options), file=file)
    own.append(RunLock(config.run, config.state))
    if config.users_folder is not None:
        own.append(RunLock(config.users_folder, config.state, setting="users_dir"))
    return run(config, own, serve)


def _load(options: argparse.Namespace) -> Config:
    from pliant.server.config import load_config, parse_options

    return load_config(
        options.config,
        strategy=options.strategy,
        strategy_options=parse_options(options.strategy_option),
        state_dir=options.state_dir,
        run_dir=options.run_dir,
        listen=options.listen,
        debug=options.debug or None,
        log_format=options.log_format,
    )


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="pliant server", description="Run the Pliant server.")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration (YAML)")
    parser.add_argument("--check", action="store_true", help="check the configuration and leave")
    parser.add_argument(
        "--recover",
        action="store_true",
        help="put what can be read of a damaged job database in its place, and leave",
    )
    parser.add_argument("--strategy", metavar="NAME", help="scheduling strategy")
    parser.add_argument(
        "--strategy-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the strategy (repeatable)",
    )
    parser.add_argument("--state-dir", metavar="DIR", help="folder of the job database")
    parser.add_argument("--run-dir", metavar="DIR", help="folder of sockets and pid files")
    parser.add_argument("--listen", metavar="HOST:PORT", help="port for the nodes of other hosts")
    parser.add_argument("--debug", action="store_true", help="check every invariant, log more")
    parser.add_argument("--log-format", choices=["text", "json"], help="of the log (text)")
    return parser


def _check_strategy(config: Config) -> None:
    """Load the configured strategy once to find mistakes in its name and options.

    Raises:
        ConfigError: the strategy is unknown, or one of its options is wrong.
    """
    from pliant.server.config import ConfigError
    from pliant.server.execution.strategy_choice import check_strategy
    from pliant.server.execution.strategy_process import StrategyRefusedError

    try:
        check_strategy(config.strategy, config.strategy_options)
    except StrategyRefusedError as error:
        raise ConfigError(f"{error.key}: {error}") from None


def _check_identity(config: Config) -> None:
    """Check that the identity of the cluster can be used, if other hosts may connect.

    Raises:
        ConfigError: the identity cannot be used.
    """
    if not config.uses_tls:
        return
    from pliant.protos.identity.cluster_files import load_identity
    from pliant.protos.identity.identity_errors import IdentityError
    from pliant.server.config import ConfigError

    try:
        load_identity(config.identity)
    except (IdentityError, OSError) as error:
        raise ConfigError(f"listen: {error}") from None


def run(
    config: Config, locks: Sequence[ServerLock | RunLock], work: Callable[[Config], int]
) -> int:
    """Make the state and run folders, take the locks, run ``work`` and return its exit status.

    If a lock is taken or a folder unusable, print the reason and return 1.

    Args:
        config: the configuration, which is passed to ``work``.
        locks: the locks to hold while ``work`` runs.
        work: runs the server, or recovers its database.
    """
    with ExitStack() as held:
        try:
            for folder in (config.state, config.run):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(open_private(config.state, shared=True))
            os.close(open_private(config.run))
            if config.users_folder is not None:
                prepare_users_folder(config.users_folder)
            for lock in locks:
                lock.acquire()
                held.callback(lock.release)
        except (AlreadyRunningError, OSError) as error:
            why = _startup_error_message(config, error) if isinstance(error, OSError) else error
            print(f"pliant server: {why}", file=sys.stderr)
            return 1
        return work(config)


def _recover(config: Config) -> int:
    """Replace a damaged database by a new one with all readable rows; return the exit status.

    A database that is not damaged is left as it is, and the status is 0.
    """
    import sqlite3

    from pliant.core.state.json_records import NewerRecordError
    from pliant.server.database.engine import DatabaseUnusableError, unusable_error
    from pliant.server.database.salvage import is_intact, recover

    path = config.state / "pliant.db"
    try:
        if is_intact(path):
            print(f"{path} is good: there is nothing to recover, and nothing was changed")
            return 0
        kept, found, told = recover(path)
    except NewerRecordError as error:
        print(f"pliant server: {unusable_error(path, error)}", file=sys.stderr)
        return 1
    except (DatabaseUnusableError, OSError, sqlite3.Error) as error:
        print(f"pliant server: {path} cannot be recovered: {error}", file=sys.stderr)
        return 1
    rows = ", ".join(f"{number} of {table}" for table, number in found.items())
    print(f"read: {rows}; the damaged file is kept as {kept}")
    for line in told:
        print(line)
    return 0


def _serve(config: Config, *, read: Callable[[], Config], file: LogFile) -> int:
    """Run the server until a signal ends it, and return the exit status.

    SIGHUP reloads the settings. If a thread fails, the process exits at once with status 1.

    Args:
        config: the configuration.
        read: reads the configuration again, with the options of the command line.
        file: the log file, which SIGHUP reopens.
    """
    manager = ServiceManager.from_environment()
    shutdown = ShutdownPipe()
    shutdown.stop_on(signal.SIGTERM, signal.SIGINT)
    shutdown.on_hangup(lambda: None)
    # A fork in a process with gRPC threads can hang parent and child. Nothing here forks, so the
    # fork handlers of gRPC, which cost time, are switched off.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    require_tls_1_3()
    # The library would log each failed handshake, which strangers can cause at will.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # A job passes through about a dozen hand-overs between threads. With the default switch
    # interval of 5 ms each of them could take that long.
    sys.setswitchinterval(0.00001)
    _raise_descriptor_limit()
    with imports_without_gc():
        from pliant.server.reload import Reload
        from pliant.server.running_server_config import remove_running_config, write_running_config
        from pliant.server.server import Server

    try:
        server = Server(config, shutdown.stop, shutdown.fail, manager)
        server.start()
        pid_file = config.run / "server.pid"
        write_whole(pid_file, f"{os.getpid()} {started_ticks()}\n")
        write_running_config(config)
    except Exception as error:
        if (why := _startup_error_message(config, error)) is None:
            raise
        print(f"pliant server: {why}", file=sys.stderr)
        return 1
    reload = Reload(config, read, server.reload)
    status = f"serving {server.address}, strategy {config.strategy}"

    def on_hangup() -> None:
        manager.reloading()
        reload.handle(file)
        write_running_config(reload.config)
        manager.ready(status)

    shutdown.on_hangup(on_hangup)
    _log_ready(config, server.address, server.tls_addresses)
    manager.ready(status)
    shutdown.wait()
    manager.stopping()
    if shutdown.fault:
        # Without that thread the state in memory cannot be trusted. The database can.
        log.critical("thread %s failed: the server ends, jobs keep running", shutdown.fault)
        os._exit(1)
    log.info("stopping; jobs keep running")
    server.stop()
    pid_file.unlink(missing_ok=True)
    remove_running_config(config)
    return 0


def _startup_error_message(config: Config, error: Exception) -> object:
    """Return a message for the administrator about a failed start; None for an internal error."""
    import sqlite3

    from sqlalchemy.exc import SQLAlchemyError

    from pliant.core.state.json_records import NewerRecordError
    from pliant.protos.identity.identity_errors import IdentityError
    from pliant.server.database.database_errors import has_free_space, is_disk_full
    from pliant.server.database.engine import DatabaseUnusableError, no_space_error, unusable_error
    from pliant.server.database.row_codecs import UnreadableRowError

    match error:
        case SQLAlchemyError() | sqlite3.Error() | UnreadableRowError() | NewerRecordError():
            return unusable_error(config.state / "pliant.db", error)
        case OSError() if is_disk_full(error, config.state):
            return no_space_error(config.state if not has_free_space(config.state) else config.run)
        case OSError():
            return describe_unusable(error)
        case DatabaseUnusableError() | IdentityError():
            return error
    return None


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit.

    Each controller, application and user needs a descriptor. The soft limit, often 1024, is meant
    for programs that use select().
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _log_ready(config: Config, address: str, tls: Mapping[str, str]) -> None:
    from pliant.server.config import has_identity

    if config.users_folder is not None:
        log.info("all users of this host may connect: %s", config.users_folder / "server.sock")
    elif os.geteuid() != 0:
        log.info("single-user mode: all jobs run as this user")
    else:
        log.info("single-user mode: all jobs run as the user of the node controllers")
    if tls:
        where = ", ".join(f"{name} at {each}" for name, each in tls.items())
        log.info("cluster mode: other hosts connect over TLS 1.3: %s", where)
    elif has_identity(config.state):
        log.info("single-host mode: the identity in %s is not used without listen", config.identity)
    else:
        log.info("single-host mode: for several hosts, begin with `pliant cluster init`")
    log.info("serving %s, strategy %s, state in %s", address, config.strategy, config.state)

"""``pliant backup`` and ``pliant restore``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pliant.core.support.base_error import PliantError
from pliant.core.support.command_line import CommandParser


def backup(argv: Sequence[str] | None = None) -> int:
    """Save the database, the identity and the configuration of a server; return the exit status."""
    parser = _parser(
        "pliant backup",
        "Save the job database, the identity of the cluster and the configuration in a file with "
        "mode 0600. The server may run. The file holds secret keys.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of the server")
    options = parser.parse_args(argv)
    return _run(parser.prog, lambda: _backup(options))


def restore(argv: Sequence[str] | None = None) -> int:
    """Write the state folder of a server from a backup; return the exit status."""
    parser = _parser(
        "pliant restore",
        "Make the state folder of the server from a backup. The server must not run.",
    )
    parser.add_argument(
        "--replace", action="store_true", help="move a state that is there aside, into a folder"
    )
    parser.add_argument(
        "--configuration-to", type=Path, metavar="DIR", help="write the configuration files there"
    )
    options = parser.parse_args(argv)
    return _run(parser.prog, lambda: _restore(options))


def _parser(prog: str, description: str) -> CommandParser:
    parser = CommandParser(
        prog=prog,
        description=description,
        epilog="exit codes: 0 done, 1 it failed and nothing was changed, 2 wrong usage",
    )
    parser.add_argument("file", type=Path, help="the backup")
    parser.add_argument("--state-dir", metavar="DIR", help="folder of the job database")
    return parser


def _run(prog: str, act: Callable[[], int]) -> int:
    from pliant.server.config import ConfigError

    try:
        return act()
    except ConfigError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        print(f"{prog}: {text}", file=sys.stderr)
    except PliantError as error:
        print(f"{prog}: {error}", file=sys.stderr)
    return 1


def _backup(options: argparse.Namespace) -> int:
    from pliant.server.backup.create import LEFT_OUT, create_backup
    from pliant.server.config import load_config

    config = load_config(options.config, state_dir=options.state_dir)
    configuration = [path for path in (options.config, config.roles and Path(config.roles)) if path]
    state = config.state
    manifest = create_backup(options.file, state, configuration)
    for name in manifest["files"]:
        print(name)
    print(f"saved in {options.file}, which holds secret keys: only its owner may read it")
    print(f"not in it: {'; '.join(LEFT_OUT)}")
    if not configuration:
        print("not in it: the configuration; name its file with --config")
    return 0


def _restore(options: argparse.Namespace) -> int:
    from pliant.server.backup.restore import read_backup, restore_backup, restore_configuration
    from pliant.server.config import Config

    state = Config(state_dir=options.state_dir or "").state
    manifest, kept = restore_backup(options.file, state, replace=options.replace)
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(manifest["made"]))
    print(f"{state} is as it was at {made}")
    if kept is not None:
        print(f"the state that was there is in {kept}")
    if options.configuration_to is not None:
        for path in restore_configuration(read_backup(options.file)[1], options.configuration_to):
            print(f"written: {path}")
    print("jobs that were submitted later are lost; make sure that the old server does not start")
    return 0

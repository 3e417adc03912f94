"""``pliant config``: show, check and compare configurations of the server and of nodes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.core.support.command_line import CommandParser

if TYPE_CHECKING:  # it takes long to import, and the help does not need it
    from pliant.server.config import Config

PROG = "pliant config"
#: Keys that an environment variable sets if the file does not.
_VARIABLES = {"state_dir": "PLIANT_STATE_DIR", "run_dir": "PLIANT_RUN_DIR"}


def main(argv: Sequence[str] | None = None) -> int:
    """Show, check and compare configurations of the server and of node controllers.

    Returns:
        0 if all files are valid and, for the action ``diff``, equal; 1 if the files differ; 2 if a
        file is invalid.
    """
    options = _parser().parse_args(argv)
    if options.node:
        return _ask_nodectl(options)
    from pliant.server.config import ConfigError

    try:
        return int(options.act(options))
    except ConfigError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 2


def _parser() -> CommandParser:
    parser = CommandParser(
        prog=PROG,
        description="Show, check and compare configurations of the server and of node controllers.",
        epilog="exit codes: 0 all is right, 1 the files differ (diff), 2 a file or the usage is "
        "wrong",
    )
    actions = parser.add_subparsers(metavar="action", required=True)
    show = actions.add_parser(
        "show",
        help="all values in force, and where each comes from",
        description="List the value of each key, and the line, variable or default it comes from.",
    )
    show.add_argument("file", nargs="?", type=Path, help="configuration (YAML)")
    show.add_argument("--changed", action="store_true", help="only values that are no defaults")
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(act=_show)
    check = actions.add_parser(
        "check",
        help="check files; an error names file, line and key",
        description="Check files. An error names the file, the line and the key.",
    )
    check.add_argument("files", nargs="+", type=Path, metavar="file", help="configuration (YAML)")
    check.set_defaults(act=_check)
    diff = actions.add_parser(
        "diff",
        help="what differs between two files, or from the running server or the defaults",
        description="List the keys that differ between two files, between the running server and a "
        "file, or between the defaults and a file, and whether SIGHUP makes a running daemon use "
        "the change.",
    )
    diff.add_argument("file", type=Path, help="configuration (YAML)")
    diff.add_argument(
        "--running", action="store_true", help="compare the running server with the file"
    )
    diff.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="run folder of the server (as in the file)"
    )
    diff.add_argument("new", nargs="?", type=Path, help="another one, which is to replace it")
    diff.add_argument("--json", action="store_true", help="print JSON")
    diff.set_defaults(act=_diff)
    for action in (show, check, diff):
        action.add_argument(
            "--node",
            action="store_true",
            help="the files are those of node controllers (node.yaml)",
        )
    return parser


def _ask_nodectl(options: argparse.Namespace) -> int:
    """Carry out the action on configuration files of node controllers; return its exit status.

    This happens in a child process, because the server may not import the code of the controllers.
    """
    import subprocess

    if getattr(options, "running", False):
        print(f"{PROG}: --running compares the server: leave out --node", file=sys.stderr)
        return 2
    given = (
        options.files if options.act is _check else [options.file, getattr(options, "new", None)]
    )
    files = [str(file) for file in given if file is not None]
    flags = [f"--{name}" for name in ("changed", "json") if getattr(options, name, False)]
    action = options.act.__name__.removeprefix("_")
    command = [sys.executable, "-P", "-m", "pliant.nodectl.config_command", action, *files, *flags]
    return subprocess.run(command, check=False).returncode


def _values(config: Config) -> dict[str, Any]:
    import msgspec

    # As JSON has them: a tuple is a list, as in the file of a running server.
    values = msgspec.json.decode(msgspec.json.encode(config))
    return {key: values[key] for key in config.__struct_fields__}


def _show(options: argparse.Namespace) -> int:
    from pliant.protos.daemons.config_files import key_lines
    from pliant.server.config import Config, load_config

    lines = key_lines(options.file) if options.file else {}
    config = load_config(options.file)
    defaults = _values(Config())
    rows = {}
    for key, own in _values(config).items():
        variable = _VARIABLES.get(key, "")
        from_variable = "" if own or not variable else os.environ.get(variable, "")
        value = from_variable or own
        origin = f"${variable}" if from_variable else "default"
        if key in lines:
            origin = f"{options.file}:{lines[key]}"
        if not options.changed or value != defaults[key]:
            rows[key] = {"value": value, "origin": origin}
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    width = max(map(len, rows), default=0)
    for key, row in rows.items():
        print(f"{key:{width}}  {json.dumps(row['value'])}  ({row['origin']})")
    return 0


def _check(options: argparse.Namespace) -> int:
    from pliant.server.config import ConfigError, load_config

    wrong = 0
    for file in options.files:
        try:
            load_config(file)
        except ConfigError as error:
            wrong += 1
            print(f"{PROG}: {error}", file=sys.stderr)
        else:
            print(f"{file}: right")
    return 2 if wrong else 0


def _diff(options: argparse.Namespace) -> int:
    from pliant.server.config import Config, ConfigError, load_config
    from pliant.server.reload import is_reloaded

    first = load_config(options.file)
    if options.running:
        from pliant.server.running_server_config import read_running_config

        if options.new is not None:
            raise ConfigError("--running compares one file with the server: name one file")
        in_force = read_running_config(options.run_dir or first.run)
        before, after = {key: in_force.get(key) for key in _values(first)}, _values(first)
    elif options.new is None:
        before, after = _values(Config()), _values(first)
    else:
        before, after = _values(first), _values(load_config(options.new))
    rows = {
        key: {
            "old": before[key],
            "new": after[key],
            "needs": "reload" if is_reloaded(key) else "restart",
        }
        for key in before
        if before[key] != after[key]
    }
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        for key, row in rows.items():
            old, new = json.dumps(row["old"]), json.dumps(row["new"])
            how = "SIGHUP" if row["needs"] == "reload" else "needs a restart"
            print(f"{key}: {old} -> {new}  ({how})")
    return 1 if rows else 0

"""``pliant config``: show, check and compare configurations of the server."""

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
    """Show, check and compare configurations of the server.

    Returns:
        0 if all files are right and, with ``diff``, equal; 1 if files differ; 2 for a wrong file.
    """
    options = _parser().parse_args(argv)
    from pliant.server.config import ConfigError

    try:
        return int(options.act(options))
    except ConfigError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 2


def _parser() -> CommandParser:
    parser = CommandParser(
        prog=PROG,
        description="Show, check and compare configurations of the server.",
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
        help="what differs between two files, or from the defaults",
        description="List the keys that differ between two files, or between a file and the "
        "defaults, and whether SIGHUP makes a running server use the change.",
    )
    diff.add_argument("file", type=Path, help="configuration (YAML)")
    diff.add_argument("new", nargs="?", type=Path, help="another one, which is to replace it")
    diff.add_argument("--json", action="store_true", help="print JSON")
    diff.set_defaults(act=_diff)
    return parser


def _values(config: Config) -> dict[str, Any]:
    import msgspec

    values = msgspec.to_builtins(config)
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
    from pliant.server.config import Config, load_config
    from pliant.server.reload import is_reloaded

    first = load_config(options.file)
    before, after = (
        (_values(Config()), _values(first))
        if options.new is None
        else (_values(first), _values(load_config(options.new)))
    )
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

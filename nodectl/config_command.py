"""``pliant config ... --node``: show, check and compare configurations of node controllers.

``pliant config`` runs this module as a process, because the server's part cannot import it:
``python -m pliant.nodectl.config_command ACTION FILE...``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from pliant.nodectl.settings import RELOADED, ControllerSettings, ControllerSettingsError, load
from pliant.protos.daemons.config_files import key_lines

PROG = "pliant config"


def main(argv: Sequence[str] | None = None) -> int:
    """Show, check or compare configuration files, and return the exit status.

    The status is 0, or 1 if two files differ, or 2 if a file is invalid.
    """
    parser = argparse.ArgumentParser(prog=PROG)
    parser.add_argument("action", choices=("show", "check", "diff"))
    parser.add_argument("files", nargs="*")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if options.action == "check":
        return max([_check(file) for file in options.files], default=0)
    first = options.files[0] if options.files else None
    compared = [None, first] if len(options.files) < 2 else options.files[:2]
    values: list[dict[str, Any]] = []
    for file in [first] if options.action == "show" else compared:
        try:
            values.append(_values(file))
        except ControllerSettingsError as error:
            return _wrong(file, error)
    if options.action == "show":
        _show(first, values[0], only_changed=options.changed, as_json=options.json)
        return 0
    return _diff(*values, as_json=options.json)


def _wrong(file: str | None, error: ControllerSettingsError) -> int:
    """Print why a file is invalid, with the line of the wrong key; return the exit status 2."""
    key = str(error).partition(":")[0].partition(".")[0]
    try:
        line = key_lines(file).get(key) if file else None
    except (OSError, ValueError):
        line = None
    place = f"{file}:{line}: " if line else f"{file}: "
    print(f"{PROG}: {place}{error}", file=sys.stderr)
    return 2


def _check(file: str) -> int:
    try:
        load(file, {})
    except ControllerSettingsError as error:
        return _wrong(file, error)
    print(f"{file}: right")
    return 0


def _values(file: str | None) -> dict[str, Any]:
    settings = load(file, {})
    values = msgspec.to_builtins(settings)
    return {key: values[key] for key in ControllerSettings.__struct_fields__}


def _show(file: str | None, values: dict[str, Any], *, only_changed: bool, as_json: bool) -> None:
    lines = key_lines(file) if file else {}
    defaults = _values(None)
    rows = {
        key: {"value": value, "origin": f"{file}:{lines[key]}" if key in lines else "default"}
        for key, value in values.items()
        if not only_changed or value != defaults[key]
    }
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    width = max(map(len, rows), default=0)
    for key, row in rows.items():
        print(f"{key:{width}}  {json.dumps(row['value'])}  ({row['origin']})")


def _diff(before: dict[str, Any], after: dict[str, Any], *, as_json: bool) -> int:
    rows = {
        key: {
            "old": before[key],
            "new": after[key],
            "needs": "reload" if key in RELOADED else "restart",
        }
        for key in before
        if before[key] != after[key]
    }
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        for key, row in rows.items():
            old, new = json.dumps(row["old"]), json.dumps(row["new"])
            how = "SIGHUP" if row["needs"] == "reload" else "needs a restart"
            print(f"{key}: {old} -> {new}  ({how})")
    return 1 if rows else 0


if __name__ == "__main__":
    sys.exit(main())

"""``pliant deploy units``: print or install the files for systemd."""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.terminal.output import print_text
from pliant.deploy.unit_files import ROLES, Installation, InstalledFile, make_files
from pliant.protos.address import TcpAddress, parse_address

#: Printed after the installation below /etc; roles are started when the host has an identity.
NEXT_STEPS = """\
next, as root:
  systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload
  systemctl enable --now pliant.target"""


def add_units_action(actions: Any) -> None:
    """Add the action ``units`` to the parser of ``pliant deploy``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "units",
        help="print or install systemd units",
        description="Print the systemd units of the daemons and the files that go with them, or "
        "write them to a folder. Files of settings that are there already are kept.",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--print", action="store_true", help="print all files")
    where.add_argument(
        "--output", type=Path, metavar="DIR", help="write them below this folder, such as /etc"
    )
    parser.add_argument(
        "--role",
        action="append",
        choices=[*ROLES, "all"],
        default=[],
        help="what runs on the host; may be repeated (all)",
    )
    parser.add_argument(
        "--listen", default="", metavar="HOST:PORT", help="where the server listens for other hosts"
    )
    parser.add_argument(
        "--writable",
        action="append",
        default=[],
        metavar="DIR",
        help="folder that the server may write, such as that of checkpoints; may be repeated",
    )
    parser.set_defaults(act=_units)


def _units(options: argparse.Namespace) -> int:
    roles = set(options.role or ["all"])
    files = make_files(set(ROLES) if "all" in roles else roles, _installation(options))
    if options.print:
        for file in files:
            print_text(f"# /etc/{file.path}\n{file.text}")
        return 0
    for file in files:
        print_text(f"{_write(options.output, file)} {options.output / file.path}")
    print_text(_enable_hint(roles))
    return 0


def _enable_hint(roles: set[str]) -> str:
    names = {"node": "pliant-nodectl"}
    chosen = ROLES if "all" in roles else roles
    units = [names.get(role, f"pliant-{role}") for role in ROLES if role in chosen]
    return f"{NEXT_STEPS} {' '.join(units)}"


def _installation(options: argparse.Namespace) -> Installation:
    if options.listen:
        try:
            address = parse_address(options.listen)
        except ValueError as error:
            raise UsageError(f"--listen: {error}") from None
        if not isinstance(address, TcpAddress):
            raise UsageError(f"--listen: expected HOST:PORT, got {options.listen!r:.80}")
    for folder in options.writable:
        if not os.path.isabs(folder) or not folder.isprintable():
            raise UsageError(f"--writable: expected an absolute path, got {folder!r:.80}")
    program = os.path.join(sysconfig.get_path("scripts"), "pliant")
    return Installation(program, sys.executable, options.listen, tuple(options.writable))


def _write(folder: Path, file: InstalledFile) -> str:
    """Write a file; return ``written``, ``replaced``, ``unchanged``, or ``kept`` for settings."""
    path = folder / file.path
    try:
        found = path.read_text(encoding="utf-8") if path.exists() else None
        if found == file.text:
            return "unchanged"
        if found is not None and file.is_setting:
            return "kept"
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.new")
        draft.write_text(file.text, encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(path)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ClientError(f"{path}: {why.lower()}") from None
    return "replaced" if found is not None else "written"

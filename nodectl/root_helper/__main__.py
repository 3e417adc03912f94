"""The command of the root helper; `pliant node helper` executes it with ``python -I``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from pliant.core.support.command_line import CommandParser
from pliant.nodectl.root_helper.audit_log import AuditLog
from pliant.nodectl.root_helper.config import HelperConfig, load_config, prepare_folders
from pliant.nodectl.root_helper.helper_errors import HelperConfigError
from pliant.nodectl.root_helper.service import HelperService
from pliant.protos.daemons.service_manager import ServiceManager

PROG = "pliant node helper"


def main(argv: list[str] | None = None) -> int:
    """Run the helper until SIGTERM or SIGINT; jobs that it started keep running.

    Returns:
        0 after an orderly stop, 1 if the socket or a file cannot be used, 2 for wrong usage or
        settings.
    """
    options = _parser().parse_args(argv)
    if os.geteuid() != 0:
        print(f"{PROG}: only root can start processes of other users", file=sys.stderr)
        return 2
    if not sys.flags.isolated:
        print(f"{PROG}: start it with `python -I`, as `{PROG}` does", file=sys.stderr)
        return 2
    os.umask(0o077)
    os.chdir("/")
    try:
        config = load_config(options.config_dir, options.run_dir, options.state_dir)
        if options.check:
            print(_describe(config))
            return 0
        prepare_folders(config)
        service = HelperService(config, AuditLog(), manager=ServiceManager.from_environment())
    except HelperConfigError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{PROG}: {error.filename or 'socket'}: {error.strerror}", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    service.run()
    return 0


def _describe(config: HelperConfig) -> str:
    return (
        f"node {config.node} of cluster {config.cluster}, controller of user {config.account_uid}: "
        "settings are right"
    )


def _stop(_number: int, _frame: object) -> None:
    raise SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=PROG,
        description="Start jobs as their users, for the controller of this node. Run it as root.",
    )
    for option, default, text in (
        ("--config-dir", "/etc/pliant", "holds helper.json and order.pub; only root may change it"),
        ("--run-dir", "/run/pliant", "gets the socket and the folders of jobs"),
        ("--state-dir", "/var/lib/pliant-helper", "gets what must survive a restart of the host"),
    ):
        parser.add_argument(
            option, metavar="DIR", type=Path, default=Path(default), help=f"{text} ({default})"
        )
    parser.add_argument("--check", action="store_true", help="check the settings and exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())

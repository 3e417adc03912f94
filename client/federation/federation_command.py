"""``pliant federation``: let a server, the grid server, use processors of other Pliant servers."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import signal
import threading
from collections.abc import Sequence

from pliant.client.client_errors import ClientError, NoServerError
from pliant.client.terminal.output import Parser, print_text, run_command

PROG = "pliant federation"


def main(argv: Sequence[str] | None = None) -> int:
    """Claim processors of other sites for the jobs of a grid server; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Claim processors at other Pliant servers for the jobs of a grid server.",
        epilog="exit codes: 0 stopped by a signal, or done, 1 it failed, 2 wrong usage or "
        "settings, 3 no grid server",
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="sites, as YAML")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="check the settings, and leave")
    action.add_argument(
        "--end-stubs",
        action="store_true",
        help="give all processors back to the sites, and leave; stop the federation before",
    )
    options = parser.parse_args(argv)
    return run_command(PROG, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    import logging

    from pliant.client.federation.federation_loop import Federation
    from pliant.client.federation.settings import load_settings
    from pliant.core.support.plural import plural
    from pliant.protos.daemons.log_handlers import make_log_handler
    from pliant.protos.daemons.service_manager import ServiceManager

    settings = load_settings(options.config)
    if options.check:
        print_text(
            f"federation {settings.name}: {plural(len(settings.sites), 'site')}, settings are right"
        )
        return 0
    logging.basicConfig(
        handlers=[make_log_handler("pliant-federation")],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    federation = Federation(settings)
    if options.end_stubs:
        print_text(f"cancelled {plural(federation.end_stubs(), 'stub')}")
        return 0
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    manager = ServiceManager.from_environment()
    text = f"federation {settings.name}: {plural(len(settings.sites), 'site')}"
    logging.info("%s", text)
    manager.ready(text)
    has_server = True
    wait_s = 0.0
    while not stop.wait(wait_s):
        try:
            wait_s = federation.poll()
            has_server = True
        except NoServerError as error:
            if has_server:
                logging.warning("the grid server does not answer: %s", error)
            has_server, wait_s = False, min(settings.poll_s, 5.0)
        except ClientError as error:
            # The federation stays, because its stubs hold processors at the sites.
            logging.warning("nothing is done in this poll: %s", error)
            wait_s = settings.poll_s
    manager.stopping()
    return 0

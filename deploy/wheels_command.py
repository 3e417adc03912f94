"""``pliant deploy wheels``: make the wheelhouse on a machine with a network."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.terminal.output import print_text


def add_wheels_action(actions: Any) -> None:
    """Add the action ``wheels`` to the parser of ``pliant deploy``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "wheels",
        help="collect the wheels that hosts need",
        description="Fill a folder with wheels of Pliant and of all that it needs, so that hosts "
        "need no network. It uses pip, and fetches wheels from its index.",
    )
    parser.add_argument("folder", metavar="DIR", help="folder of the wheels; made if missing")
    parser.add_argument(
        "--source",
        default="",
        metavar="SOURCE",
        help="checkout, wheel or requirement of Pliant (what this command runs from)",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="VERSION",
        help="also for hosts with this version of Python, such as 3.12; may be repeated",
    )
    parser.add_argument(
        "--glibc",
        default="2.34",
        metavar="VERSION",
        help="with --python: oldest C library of these hosts (2.34)",
    )
    parser.add_argument(
        "--no-mpi", action="store_true", help="leave MPICH out: the hosts have their own MPI"
    )
    parser.set_defaults(act=_make)


def _make(options: argparse.Namespace) -> int:
    from pliant.deploy.wheelhouse import default_requirement, make_wheelhouse, read_wheelhouse

    for option, values in (("--python", options.python), ("--glibc", [options.glibc])):
        for value in values:
            if not re.fullmatch(r"\d{1,2}\.\d{1,3}", value, re.ASCII):
                raise UsageError(f"{option}: expected a version such as 3.12, got {value!r:.40}")
    source = options.source or default_requirement()
    extras = [] if options.no_mpi else ["mpich"]
    try:
        make_wheelhouse(options.folder, source, extras, options.python, options.glibc)
    except OSError as error:
        raise ClientError(f"{error.filename}: {(error.strerror or '').lower()}") from None
    wheels = read_wheelhouse(options.folder)
    size = sum(Path(options.folder, each.file).stat().st_size for each in wheels) >> 20
    print_text(f"{len(wheels)} wheels ({size} MB) are in {options.folder}")
    return 0

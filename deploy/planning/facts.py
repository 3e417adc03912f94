"""Facts that the probe found on a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Daemon(msgspec.Struct, frozen=True):
    """A daemon that is running on a host, and the Python environment (release) that it uses."""

    pid: int
    #: Name of the environment from which it runs.
    environment: str


class Manifest(msgspec.Struct, frozen=True):
    """The record of what was deployed on a host, such as its files, folders and release."""

    cluster: str = ""
    environment: str = ""
    previous: str = ""
    files: Mapping[str, str] = {}
    folders: list[str] = []
    account: str = ""
    units: list[str] = []
    to_restart: list[str] = []


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a host that its probe (`on_host.probe`) has reported."""

    python: tuple[int, int, int]
    #: Version of compiled modules, as hexadecimal digits.
    magic: str
    has_venv: bool
    machine: str
    #: Such as ``2.36``; empty if the C library is another one.
    glibc: str
    #: Clock of the host, in seconds since 1970.
    time: float
    user: str
    is_root: bool
    has_systemd: bool
    cpus: int
    free_bytes: Mapping[str, int]
    #: The IPv4 address of each interface; empty if it has none.
    interfaces: Mapping[str, str]
    #: Own address on the way to the server; empty if there is no way.
    route: str
    #: User and group id; None if there is no such account.
    accounts: Mapping[str, tuple[int, int] | None]
    #: SHA-256 of files; None if a file cannot be read.
    files: Mapping[str, str | None]
    #: Those of the asked folders that exist.
    folders: list[str]
    #: Names of complete environments.
    environments: list[str]
    #: Environment to which the link ``current`` points.
    current: str
    manifest: Manifest | None
    daemons: Mapping[str, Daemon]
    job_processes: int
    #: SHA-256 of root certificates: of the server's identity, and those that the node trusts.
    server_roots: list[str]
    node_roots: list[str]
    #: By how many seconds the clock is ahead of that of this machine, and the error of this value.
    clock_offset_s: float = 0.0
    clock_error_s: float = 0.0
    #: Shared folders that are not the same as on the server's host, with the reason.
    not_shared: Mapping[str, str] = {}


def parse_facts(
    record: Mapping[str, Any],
    *,
    clock_offset_s: float,
    clock_error_s: float,
    not_shared: Mapping[str, str],
) -> HostFacts:
    """Return the facts of a host.

    Args:
        record: the result of the probe on this host.
        clock_offset_s: seconds by which the host's clock is ahead of this machine's.
        clock_error_s: the largest error of this offset.
        not_shared: folders that are not shared with the server's host, each with the reason.

    Raises:
        ValueError: the record does not have the form that this version of Pliant expects.
    """
    more = {
        "clock_offset_s": clock_offset_s,
        "clock_error_s": clock_error_s,
        "not_shared": not_shared,
    }
    return msgspec.convert({**record, **more}, HostFacts)

"""The settings of a node controller: defaults, a file, and the command line."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from pliant.core.support.base_error import PliantError
from pliant.core.values.node_needs import MAX_GRES, is_gres_name, parse_memory
from pliant.core.values.node_property_constraint import is_property
from pliant.nodectl.host.cpus import format_cpus, parse_cpus
from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.daemons.config_files import ConfigFileError, read_config

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ControllerSettingsError(PliantError, code="node-settings"):
    """A setting of a node controller is wrong; the text names it."""


class ControllerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a node controller, which are also the keys of its configuration file."""

    #: Name of this node in the cluster.
    name: str = msgspec.field(default_factory=lambda: socket.gethostname().partition(".")[0])
    cluster: str = "main"
    #: Number of job processes that may run here at the same time.
    slots: int = msgspec.field(default_factory=lambda: len(os.sched_getaffinity(0)))
    #: Memory that jobs may use, such as 64G; if empty, that of the host or of its control group.
    memory: str = ""
    #: Generic resources that jobs may ask for, with the number of each, such as gpu: 4.
    gres: dict[str, int] = {}
    #: Properties of this node that jobs may require (jobsub --constraint).
    properties: list[str] = []
    #: Whether this is a spare node: idle until it replaces a lost node of its cluster.
    spare: bool = False
    #: Whether this node, when it joins as a new one, takes no work until it is resumed.
    joins_drained: bool = False
    #: Host name or address at which other nodes reach this one.
    address: str = "127.0.0.1"
    #: The server as unix:/PATH or HOST:PORT; if empty, it is read from `address_file`.
    server: str = ""
    #: A file with the server's current address; if empty, the one in the run folder.
    address_file: str = ""
    #: A file with the cluster's secret; if empty, node.secret in the state folder.
    secret_file: str = ""
    #: The socket of the root helper; if empty, the usual one is used if this account may use it.
    helper: str = ""
    #: Network layer of MPI messages.
    transport: Literal["ofi", "ucx"] = "ofi"
    #: Network interface of MPI messages.
    interface: str = "lo"
    #: CPUs of which jobs may use some, such as 0-3,8; empty: those that the controller may use.
    cpus: str = ""
    #: Whether each rank is bound to the CPUs of its slot.
    bind: bool = True
    #: A job with more processes on this node is ended; 0 means half of the kernel's process ids.
    most_processes: int = 0
    #: Seconds between two reports of the memory load of this node; 0: it reports none.
    load_interval_s: float = 5.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    #: Form of the log, unless it goes to the journal.
    log_format: Literal["text", "json"] = "text"


#: Limits of `load_interval_s`, in seconds.
MIN_LOAD_S, MAX_LOAD_S = 0.1, 3600.0

#: Settings that a running controller applies on SIGHUP; the others need a restart.
RELOADED = frozenset(
    {"transport", "interface", "bind", "most_processes", "load_interval_s", "log_level"}
)


def reload(
    old: ControllerSettings, new: ControllerSettings
) -> tuple[ControllerSettings, list[str], list[str]]:
    """Return the settings of a running controller after its file was changed.

    Returns:
        The settings, the keys that were applied, and those whose change needs a restart.
    """
    changed = [key for key in new.__struct_fields__ if getattr(new, key) != getattr(old, key)]
    taken = {key: getattr(new, key) for key in changed if key in RELOADED}
    others = [key for key in changed if key not in RELOADED]
    return msgspec.structs.replace(old, **taken), list(taken), others


def state_folder() -> Path:
    """Return the folder in which daemons keep files between starts."""
    return _folder(os.environ.get("PLIANT_STATE_DIR") or "~/.local/state/pliant")


def run_folder() -> Path:
    """Return the folder for files that exist only while daemons run."""
    chosen = os.environ.get("PLIANT_RUN_DIR")
    return _folder(chosen) if chosen else state_folder() / "run"


def _folder(path: str) -> Path:
    return Path(path).expanduser().absolute()


def load(
    path: str | None, given: dict[str, Any], defaults: Mapping[str, Any] | None = None
) -> ControllerSettings:
    """Read a file of settings; values of the command line take precedence.

    Args:
        path: the path of the file; None if there is none.
        given: the settings of the command line.
        defaults: default values for this node, used instead of those of the program.
    """
    data = {**(defaults or {}), **(_read(path) if path is not None else {}), **given}
    if "slots" not in data and isinstance(data.get("cpus"), str) and data["cpus"]:
        data["slots"] = len(_parse_cpus(data["cpus"]))
    try:
        settings = msgspec.convert(data, ControllerSettings)
    except msgspec.ValidationError as error:
        raise ControllerSettingsError(_located(str(error))) from error
    _check(settings)
    return settings


def _read(path: str) -> dict[str, Any]:
    try:
        data = read_config(path)
    except ConfigFileError as error:
        raise ControllerSettingsError(str(error)) from None
    for key in data:
        if not isinstance(key, str):
            raise ControllerSettingsError(f"{key}: there is no such key")
    return data


def _located(message: str) -> str:
    """Return "slots: expected int, got str" for "Expected `int`, got `str` - at `$.slots`"."""
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`.*", message)
    if unknown:
        return f"{unknown[1]}: there is no such key"
    text, _, place = message.partition(" - at ")
    key = place.strip("`").removeprefix("$").removeprefix(".")
    text = text.replace("`", "")
    return f"{key}: {text[:1].lower()}{text[1:]}" if key else text


def _parse_cpus(text: str) -> list[int]:
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise ControllerSettingsError(f"cpus: {error}") from None


def _check(settings: ControllerSettings) -> None:
    if not _NAME.fullmatch(settings.name):
        raise ControllerSettingsError(
            "name: expected letters, digits, '.', '_' and '-', at most 64"
        )
    if not 1 <= settings.slots <= 1_000_000:
        raise ControllerSettingsError("slots: expected a number from 1 to 1000000")
    if settings.cpus:
        missing = set(_parse_cpus(settings.cpus)) - os.sched_getaffinity(0)
        if missing:
            raise ControllerSettingsError(
                f"cpus: {settings.cpus}: the controller may not use {format_cpus(missing)}; it may "
                f"use {format_cpus(os.sched_getaffinity(0))}"
            )
    if settings.most_processes < 0:
        raise ControllerSettingsError(
            "most_processes: expected a number above 0, or 0 for half of all"
        )
    if settings.load_interval_s and not MIN_LOAD_S <= settings.load_interval_s <= MAX_LOAD_S:
        raise ControllerSettingsError(
            f"load_interval_s: expected {MIN_LOAD_S:g} to {MAX_LOAD_S:g} seconds, or 0 for no "
            f"reports, got {settings.load_interval_s:g}"
        )
    if not settings.address or any(char.isspace() for char in settings.address):
        raise ControllerSettingsError("address: expected a host name or an address")
    _check_amounts(settings)
    for key in ("cluster", "address", "server", "interface"):
        value = getattr(settings, key)
        if not value.isprintable():
            raise ControllerSettingsError(f"{key}: {value!r} has characters that cannot be printed")
    if settings.server:
        try:
            address = parse_address(settings.server)
        except ValueError as error:
            raise ControllerSettingsError(f"server: {error}") from None
        if isinstance(address, TcpAddress) and not address.port:
            raise ControllerSettingsError(
                f"server: {settings.server}: expected a port from 1 to 65535"
            )


def _check_amounts(settings: ControllerSettings) -> None:
    if settings.memory:
        try:
            parse_memory(settings.memory)
        except ValueError as error:
            raise ControllerSettingsError(f"memory: {error}") from None
    for name, amount in settings.gres.items():
        if not is_gres_name(name):
            raise ControllerSettingsError(
                f"gres: {name!r:.60} is no name; write letters, digits, '.', '_' and '-'"
            )
        if not 0 <= amount <= MAX_GRES:
            raise ControllerSettingsError(f"gres.{name}: expected 0 to {MAX_GRES}, got {amount}")
    for name in settings.properties:
        if not is_property(name):
            raise ControllerSettingsError(
                f"properties: {name!r:.80} is no property; write letters, digits, '.', '_' and '-'"
            )


def check_interface(interface: str) -> None:
    """Check that this node has a network interface.

    Raises:
        ControllerSettingsError: there is no such interface; names those that there are.
    """
    if interface not in (there := interfaces()):
        raise ControllerSettingsError(
            f"interface: there is no network interface {interface} here; there are: "
            f"{', '.join(there)}"
        )


def interfaces() -> list[str]:
    """Return the names of the network interfaces of this node."""
    return sorted(name for _, name in socket.if_nameindex())

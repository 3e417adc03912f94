"""Read ``hosts.yaml``: the hosts of a cluster, their roles and settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import yaml

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.ssh.target import parse_jumps
from pliant.core.values.node_ranges import parse_node_ranges
from pliant.deploy.planning.cluster import Cluster, Folders, Host, Role
from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.daemons.config_files import ConfigFileError, read_config

_FIELD = re.compile(r"\A[A-Za-z_][A-Za-z0-9_-]{0,31}\Z", re.ASCII)
#: The kernel does not execute scripts whose first line is longer than about 127 bytes.
_MAX_PREFIX = 80
_NAME_PLACE = "{name}"


class HostsFileError(ClientError):
    """``hosts.yaml`` is wrong; the text names file, line and key."""

    exit_code = 2


class _Folders(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    prefix: str = ""
    state: str = ""
    run: str = ""
    config: str = ""


class _HostKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys that a host may have. At the top of the file, they set defaults for all hosts."""

    user: str = ""
    port: int | None = None
    key: str = ""
    jump: str = ""
    sudo: bool | None = None
    python: str = ""
    interface: str = ""
    slots: int | None = None
    folders: _Folders = _Folders()


class _HostEntry(_HostKeys, frozen=True, forbid_unknown_fields=True, kw_only=True):
    role: str | list[str] = "node"
    #: Where SSH reaches the host; empty: its name.
    address: str = ""


class _File(_HostKeys, frozen=True, forbid_unknown_fields=True, kw_only=True):
    cluster: str
    listen: str
    hosts: dict[str, Any]
    listen_users: str = ""
    account: str = "pliant"
    helper: bool = True
    service: Literal["auto", "systemd", "plain"] = "auto"
    #: Empty: those of the user and of this machine.
    known_hosts: str = ""
    wheelhouse: str = ""
    shared: list[str] = []
    users: list[str] = []
    addresses: list[str] = []
    server: dict[str, Any] = {}


def read_hosts_file(path: str) -> Cluster:
    """Return the cluster that a file describes.

    Raises:
        HostsFileError: the file cannot be read or is wrong.
    """
    try:
        data = read_config(path)
        return _Reader(path, data).read()
    except ConfigFileError as error:
        raise HostsFileError(f"{path}: {error}") from None


class _Reader:
    """Checks the content of the hosts file; every error names the line of the key that is wrong."""

    def __init__(self, path: str, data: Mapping[str, Any]) -> None:
        self._path, self._data = path, data
        self._folder = os.path.dirname(os.path.abspath(path))

    def read(self) -> Cluster:
        file = self._convert(self._data, _File, [])
        self._check_top(file)
        hosts: dict[str, Host] = {}
        for names, entry in file.hosts.items():
            for host in self._hosts(file, names, {} if entry is None else entry):
                if host.name in hosts:
                    self._fail(["hosts", names], f"{host.name} is there twice")
                hosts[host.name] = host
        servers = [host.name for host in hosts.values() if Role.SERVER in host.roles]
        if len(servers) != 1:
            found = ", ".join(servers) or "none"
            self._fail(["hosts"], f"one host needs `role: server`, found {found}")
        return Cluster(
            name=file.cluster,
            hosts=tuple(hosts.values()),
            listen=file.listen,
            listen_users=file.listen_users,
            account=file.account,
            has_helper=file.helper,
            service=file.service,
            known_hosts=self._local(file.known_hosts),
            wheelhouse=self._local(file.wheelhouse),
            shared=tuple(file.shared),
            users=tuple(file.users),
            addresses=tuple(file.addresses),
            server_settings=dict(file.server),
        )

    def _check_top(self, file: _File) -> None:
        if not _FIELD.match(file.cluster):
            self._fail(["cluster"], f"{file.cluster!r:.40} is not a name: use letters and digits")
        if not _FIELD.match(file.account):
            self._fail(["account"], f"{file.account!r:.40} is not the name of an account")
        for key, value in (("listen", file.listen), ("listen_users", file.listen_users)):
            if value or key == "listen":
                self._check_address(key, value)
        if file.listen.startswith(("0.0.0.0:", "[::]:")) and not file.addresses:
            self._fail(["listen"], "needs `addresses`: the names or addresses that the nodes use")
        for folder in file.shared:
            if not os.path.isabs(folder):
                self._fail(["shared"], f"expected absolute paths, got {folder!r:.80}")
        for reserved in ("listen", "listen_users", "state_dir", "run_dir"):
            if reserved in file.server:
                place = "at the top of the file" if reserved in self._top() else "with `folders`"
                self._fail(["server", reserved], f"set it {place}")

    def _top(self) -> tuple[str, ...]:
        return _File.__struct_fields__

    def _check_address(self, key: str, value: str) -> None:
        try:
            address = parse_address(value)
        except ValueError as error:
            self._fail([key], str(error))
        if not isinstance(address, TcpAddress) or not 0 < address.port < 65535:
            self._fail([key], f"expected HOST:PORT, got {value!r:.80}")

    def _hosts(self, file: _File, names: str, entry: Any) -> list[Host]:
        place = ["hosts", names]
        try:
            found = parse_node_ranges(names)
        except ValueError as error:
            self._fail(place, str(error))
        own = self._convert(entry, _HostEntry, place)
        roles = self._roles(own, place)
        if own.address and len(found) > 1 and _NAME_PLACE not in own.address:
            self._fail(
                [*place, "address"], f"{len(found)} hosts have one address: use {_NAME_PLACE}"
            )
        port = own.port if own.port is not None else file.port
        if port is not None and not 0 < port < 65536:
            self._fail([*place, "port"] if own.port is not None else ["port"], f"{port} is no port")
        try:
            parse_jumps(own.jump or file.jump)
        except UsageError as error:
            self._fail([*place, "jump"] if own.jump else ["jump"], str(error))
        slots = own.slots if own.slots is not None else file.slots
        if slots is not None and slots < 1:
            self._fail([*place, "slots"] if own.slots is not None else ["slots"], "at least 1")
        return [
            Host(
                name=name,
                roles=roles,
                address=(own.address or name).replace(_NAME_PLACE, name),
                port=port or 0,
                user=own.user or file.user or "root",
                key=self._local(own.key or file.key),
                jump=own.jump or file.jump,
                sudo=own.sudo if own.sudo is not None else bool(file.sudo),
                python=own.python or file.python or "/usr/bin/python3",
                interface=own.interface or file.interface,
                slots=slots,
                folders=self._folders(file, own, name, place),
            )
            for name in found
        ]

    def _roles(self, own: _HostEntry, place: Sequence[str]) -> frozenset[Role]:
        words = [own.role] if isinstance(own.role, str) else own.role
        allowed = ", ".join(Role)
        for word in words:
            if word not in set(Role):
                self._fail([*place, "role"], f"{word!r:.40} is none of {allowed}")
        if not words:
            self._fail([*place, "role"], f"expected one or more of {allowed}")
        return frozenset(Role(word) for word in words)

    def _local(self, path: str) -> str:
        """Return the absolute path of a file on this machine; an empty path stays empty.

        A relative path is relative to the folder of the hosts file.
        """
        return os.path.join(self._folder, os.path.expanduser(path)) if path else ""

    def _folders(self, file: _File, own: _HostEntry, name: str, place: Sequence[str]) -> Folders:
        default = Folders()
        values = {}
        for field in ("prefix", "state", "run", "config"):
            mine, common = getattr(own.folders, field), getattr(file.folders, field)
            value = (mine or common or getattr(default, field)).replace(_NAME_PLACE, name)
            where = [*place, "folders", field] if mine else ["folders", field]
            if not os.path.isabs(value) or not value.isprintable() or any(map(str.isspace, value)):
                self._fail(where, f"expected an absolute path without blanks, got {value!r:.80}")
            value = os.path.normpath(value)
            if value.count("/") < 2 and value != getattr(default, field):
                self._fail(where, f"{value} is a folder of the system: name one inside of it")
            values[field] = value
        if len(values["prefix"]) > _MAX_PREFIX:
            self._fail(["folders", "prefix"], f"longer than {_MAX_PREFIX} characters")
        if len(set(values.values())) < len(values):
            self._fail(["folders"], "two of the folders are the same")
        folders = Folders(**values)
        if file.helper and folders.config != default.config:
            self._fail(
                ["folders", "config"],
                f"the root helper reads {default.config}; leave the key out, or set helper: false",
            )
        return folders

    def _convert(self, data: Any, kind: type[Any], place: Sequence[str]) -> Any:
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            key, text = _located(str(error))
            self._fail([*place, *key], text)

    def _fail(self, place: Sequence[str], message: str) -> Any:
        line = _line_of(self._path, place)
        where = f"line {line}: " if line else ""
        raise HostsFileError(f"{self._path}: {where}{'.'.join(place)}: {message}")


def _located(message: str) -> tuple[list[str], str]:
    """Split a message such as "Expected `int`, got `str` - at `$.port`" into key path and text."""
    text, _, place = message.partition(" - at ")
    key = [word for word in re.split(r"[.\[\]]+", place.strip("`").removeprefix("$")) if word]
    text = text.replace("`", "")
    missing = re.fullmatch(r"Object missing required field (\w+)", text)
    if missing:
        return [*key, missing[1]], "it is missing; write it into the file"
    unknown = re.fullmatch(r"Object contains unknown field (.*)", text)
    if unknown:
        return [*key, unknown[1]], "there is no such key"
    return key, text[:1].lower() + text[1:]


def _line_of(path: str, place: Sequence[str]) -> int:
    """Return the number of the line in which a key is, counted from 1.

    Args:
        path: the path of the hosts file.
        place: the names of the enclosing keys from the outermost on, then that of the key.

    Returns:
        The line; that of the innermost enclosing key if the key is missing; 0 if that is missing,
        too.
    """
    try:
        with open(path, encoding="utf-8") as file:
            node = yaml.compose(file, Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return 0
    line = 0
    for word in place:
        if not isinstance(node, yaml.MappingNode):
            break
        for key, value in node.value:
            if str(key.value) == word:
                line, node = key.start_mark.line + 1, value
                break
        else:
            break
    return line

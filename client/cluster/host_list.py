"""The hosts of a user's own cluster, as ``pliant up --hosts`` names them: a file or a list."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pliant.client.client_errors import UsageError
from pliant.client.ssh.target import parse_target

MAX_HOSTS = 4096
_MAX_SLOTS = 1_000_000
#: Names of nodes have only these characters.
_UNUSABLE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Host:
    """A host that becomes a node."""

    #: Of the node.
    name: str
    #: ``[USER@]HOST[:PORT]``; empty in an allocation of Slurm.
    target: str = ""
    #: Processes that may run there at the same time; 0 for the processors of the host.
    slots: int = 0
    #: The Python interpreter there; empty for the path of the one that runs here.
    python: str = ""


def read_hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts of a file, or those of a list such as ``n[1-3],alice@m7``.

    Raises:
        UsageError: the file cannot be read, or a host is not written as it should be.
    """
    if os.path.exists(text) or "/" in text:
        hosts = _read_file(text)
    else:
        hosts = [_host(target) for target in _expand(text, "--hosts")]
    if not hosts:
        raise UsageError(f"--hosts: {text!r:.100} names no host")
    if len(hosts) > MAX_HOSTS:
        raise UsageError(f"--hosts: {len(hosts)} hosts, at most {MAX_HOSTS} are possible")
    return _with_unique_names(hosts)


def _read_file(path: str) -> list[Host]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"--hosts: {path}: {reason.lower()}; name a file of hosts") from None
    hosts: list[Host] = []
    for number, line in enumerate(lines, 1):
        if words := line.partition("#")[0].split():
            hosts += _parse_line(words, f"{path}, line {number}")
    return hosts


def _parse_line(words: list[str], where: str) -> Iterable[Host]:
    """Yield the hosts of a line ``HOSTS [slots=N] [name=NAME] [python=PATH]``.

    Args:
        words: the words of the line; the first one may name several hosts.
        where: where the line is, such as its file and number; error messages begin with it.

    Raises:
        UsageError: the line is malformed.
    """
    settings: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or not value or key not in {"slots", "name", "python"}:
            raise UsageError(
                f"{where}: {word!r:.60}: expected slots=N, name=NAME or python=PATH after the host"
            )
        if key in settings:
            raise UsageError(f"{where}: {key} is given twice")
        settings[key] = value
    slots = settings.get("slots", "0")
    if not (slots.isascii() and slots.isdecimal() and int(slots) <= _MAX_SLOTS) or (
        "slots" in settings and not int(slots)
    ):
        raise UsageError(f"{where}: slots={slots:.30}: expected a number from 1 to {_MAX_SLOTS}")
    targets = _expand(words[0], where)
    name = settings.get("name", "")
    if name and (len(targets) > 1 or _UNUSABLE.search(name)):
        raise UsageError(
            f"{where}: name={name:.60}: expected letters, digits, '.', '_' and '-', for one host"
        )
    for target in targets:
        found = _host(target, where)
        yield replace(
            found, name=name or found.name, slots=int(slots), python=settings.get("python", "")
        )


def _expand(text: str, where: str) -> list[str]:
    """Return each host of a list as ``[USER@]HOST[:PORT]``; ranges such as ``n[1-3]`` are expanded.

    A user or port applies only to the item of the list in which it is written. Error messages
    begin with ``where``, which says where the list is.
    """
    from pliant.core.values.node_ranges import parse_node_ranges

    targets: list[str] = []
    for item in _split(text):
        user, at, rest = item.rpartition("@")
        host, colon, port = rest.rpartition(":") if re.search(r":[0-9]+$", rest) else (rest, "", "")
        is_range = "[" in host and ":" not in host
        try:
            names = parse_node_ranges(host) if is_range else (host,)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
        targets += [f"{user}{at}{name}{colon}{port}" for name in names]
    return targets


def _split(text: str) -> list[str]:
    """Split a list of hosts at its commas, except those inside brackets, and return the items."""
    return [item for item in re.split(r",(?![^\[]*\])", text) if item]


def _host(target: str, where: str = "--hosts") -> Host:
    try:
        host = parse_target(target).host
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    return Host(_UNUSABLE.sub("-", host), target)


def _with_unique_names(hosts: list[Host]) -> tuple[Host, ...]:
    """Return hosts with their names shortened where the short name is unique.

    Raises:
        UsageError: two hosts have the same full name.
    """
    short = [_short_name(host.name) if _is_derived(host) else host.name for host in hosts]
    counts = Counter(short)
    named = [
        replace(host, name=name if counts[name] == 1 else host.name)
        for host, name in zip(hosts, short, strict=True)
    ]
    if twice := [name for name, count in Counter(host.name for host in named).items() if count > 1]:
        raise UsageError(
            f"--hosts: there are several hosts {', '.join(twice)}: name each host once, or give "
            "them names in a file with name=NAME"
        )
    return tuple(named)


def _is_derived(host: Host) -> bool:
    """Return whether a node's name was made from its host name, not chosen by the user."""
    return host.name == _host(host.target).name


def _short_name(name: str) -> str:
    first = name.partition(".")[0]
    return name if not first or first.isdecimal() else first  # addresses stay whole

"""Destinations of SSH: ``[USER@]HOST[:PORT]`` and ``~/.ssh/config``."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.client.client_errors import UsageError

SSH_PORT = 22
NO_JUMPS = "none"
#: More than anybody needs; a jump host whose own jump host is itself would never end.
_MAX_JUMPS = 8
#: Names and IPv4 addresses, or IPv6 addresses in brackets.
_TARGET = re.compile(
    r"(?:(?P<user>[^@\s\[\]]+)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.%]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class SshTarget:
    """A host as a destination of SSH; empty fields stand for `~/.ssh/config` or SSH's defaults."""

    #: The name that messages use, as the user wrote it.
    name: str
    host: str
    user: str = ""
    port: int = 0
    #: File of the private key; empty for the agent and the usual files.
    key_file: str = ""
    #: File of known hosts; empty for those of the user and of this host.
    known_hosts: str = ""
    #: Jump hosts separated by commas, as for `ssh -J`; "none" for none, whatever the configuration.
    jumps: str = ""


def parse_target(text: str, *, key_file: str = "", known_hosts: str = "") -> SshTarget:
    """Return the target that a user wrote as ``[USER@]HOST[:PORT]``.

    Args:
        text: what the user wrote.
        key_file: the file with the private key to use; empty if the user has named none.
        known_hosts: the file of known hosts to use; empty if the user has named none.

    Raises:
        UsageError: the text has another form.
    """
    found = _TARGET.fullmatch(text)
    port = int(found["port"] or 0) if found else 0
    if found is None or port > 65535:
        raise UsageError(f"{text!r:.100} is no host: write [USER@]HOST[:PORT], as in alice@n7:2222")
    host = found["host"].strip("[]")
    return SshTarget(host, host, found["user"] or "", port, key_file, known_hosts)


def parse_jumps(text: str, *, known_hosts: str = "") -> list[SshTarget]:
    """Return the jump hosts that a user wrote as for `ssh -J`, in the order of the connections.

    Raises:
        UsageError: one of them is not written as [USER@]HOST[:PORT].
    """
    if text.strip().lower() in ("", NO_JUMPS):
        return []
    words = [word.strip().removeprefix("ssh://").rstrip("/") for word in text.split(",")]
    return [replace(parse_target(word, known_hosts=known_hosts), name=word) for word in words]


def find_jumps(target: SshTarget, config: str = "~/.ssh/config") -> list[SshTarget]:
    """Return the jump hosts on the way to a host, in the order of the connections.

    As with `ssh`, the first jump host may have jump hosts of its own in the configuration. The
    file of known hosts that `target` names is used for all jump hosts. The key file that `target`
    names is used for jump hosts for which the configuration names no key file.

    Args:
        target: the host, before its empty fields are filled in.
        config: the user's configuration of SSH.

    Raises:
        UsageError: a jump host is written wrongly, or there are too many.
    """
    found: list[SshTarget] = []
    key_file = os.path.expanduser(target.key_file)
    text = complete_target(target, config).jumps
    while hops := parse_jumps(text, known_hosts=target.known_hosts):
        completed = [complete_target(hop, config) for hop in hops]
        text = completed[0].jumps
        found[:0] = [replace(hop, key_file=hop.key_file or key_file) for hop in completed]
        if len(found) > _MAX_JUMPS:
            raise UsageError(
                f"more than {_MAX_JUMPS} jump hosts ({jump_option(found)[:100]}): "
                f"the jump host of {found[0].name} must not be the host itself"
            )
    return found


def jump_option(jumps: Sequence[SshTarget]) -> str:
    """Return completed jump hosts as the argument of `ssh -J`."""

    def place(each: SshTarget) -> str:
        host = f"[{each.host}]" if ":" in each.host else each.host
        return host if each.port == SSH_PORT else f"{host}:{each.port}"

    return ",".join(f"{each.user}@{place(each)}" for each in jumps)


def complete_target(target: SshTarget, config: str = "~/.ssh/config") -> SshTarget:
    """Return a target whose empty fields are filled in from the user's configuration of SSH.

    HostName, User, Port, IdentityFile, UserKnownHostsFile and ProxyJump are used. Without an entry,
    the user is the present one and the port is that of SSH; key file, file of known hosts and jump
    hosts stay empty.

    Raises:
        UsageError: the configuration of SSH cannot be read.
    """
    found = _read_config(os.path.expanduser(config), target.host)
    port = found.get("port", "")
    key_file = target.key_file or found.get("identityfile", "")
    return SshTarget(
        target.name,
        found.get("hostname", target.host),
        target.user or found.get("user", "") or getpass.getuser(),
        target.port or (int(port) if port.isdecimal() else SSH_PORT),
        os.path.expanduser(key_file),
        os.path.expanduser(target.known_hosts or found.get("userknownhostsfile", "")),
        target.jumps or found.get("proxyjump", ""),
    )


def _read_config(path: str, host: str) -> dict[str, str]:
    """Return the settings of a host in a configuration of SSH, one value for each key."""
    if not os.path.exists(path):
        return {}
    from paramiko import SSHConfig
    from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

    try:
        settings = SSHConfig.from_path(path).lookup(host)
    except (OSError, ValueError, ConfigParseError, CouldNotCanonicalize) as error:
        raise UsageError(f"{path}: {error}; correct the file") from None
    single: dict[str, str] = {}
    for key, value in settings.items():
        if key == "identityfile" or isinstance(value, str):
            # Several key files may be named; those that do not exist are meant for other hosts.
            files = [value] if isinstance(value, str) else value
            present = [each for each in files if os.path.exists(os.path.expanduser(each))]
            single[key] = (present or [""])[0] if key == "identityfile" else str(value)
    # Of a list of files, the first is the one that `ssh` itself extends.
    single["userknownhostsfile"] = single.get("userknownhostsfile", "").partition(" ")[0]
    return {key: value for key, value in single.items() if value}

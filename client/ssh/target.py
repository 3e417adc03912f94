"""Destinations of SSH: ``[USER@]HOST[:PORT]`` and ``~/.ssh/config``."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import dataclass

from pliant.client.client_errors import UsageError

SSH_PORT = 22
#: Names and IPv4 addresses, or IPv6 addresses in brackets.
_TARGET = re.compile(
    r"(?:(?P<user>[^@\s\[\]]+)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.%]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class SshTarget:
    """A host; empty fields have the values of `~/.ssh/config`, or the usual ones of SSH."""

    #: The name that messages use, as the user wrote it.
    name: str
    host: str
    user: str = ""
    port: int = 0
    #: File of the private key; empty for the agent and the usual files.
    key_file: str = ""
    #: File of known hosts; empty for those of the user and of this host.
    known_hosts: str = ""


def parse_target(text: str, *, key_file: str = "", known_hosts: str = "") -> SshTarget:
    """Return the target that a user wrote as ``[USER@]HOST[:PORT]``.

    Raises:
        UsageError: it is not written this way.
    """
    found = _TARGET.fullmatch(text)
    port = int(found["port"] or 0) if found else 0
    if found is None or port > 65535:
        raise UsageError(f"{text!r:.100} is no host: write [USER@]HOST[:PORT], as in alice@n7:2222")
    host = found["host"].strip("[]")
    return SshTarget(host, host, found["user"] or "", port, key_file, known_hosts)


def complete_target(target: SshTarget, config: str = "~/.ssh/config") -> SshTarget:
    """Return a target with its empty fields filled in; those of files may stay empty.

    Of the user's configuration of SSH, HostName, User, Port, IdentityFile and UserKnownHostsFile
    are used.

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

"""Collect the facts of this host on which a plan depends. Nothing is changed."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import importlib.util
import os
import platform
import pwd
import re
import socket
import struct
import sys
import time
from typing import Any, BinaryIO

from pliant.deploy.on_host.manifest import read_manifest
from pliant.deploy.on_host.processes import find_daemons, find_processes, is_environment

#: Written into an environment when it is complete.
COMPLETE = "installed.json"
_SIOCGIFADDR = 0x8915
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.S | re.ASCII
)


def probe(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Return the facts of this host, such as its Python version, free space and running daemons.

    Args:
        arguments: the folders ``prefix``, ``state`` and ``run``; ``accounts``, ``files`` and
            ``folders`` to look for; ``writable``, the folders whose free space is measured; and
            ``server``, the address of the server.
    """
    prefix, state = arguments["prefix"], arguments["state"]
    return {
        "python": list(sys.version_info[:3]),
        "magic": importlib.util.MAGIC_NUMBER.hex(),
        "has_venv": importlib.util.find_spec("venv") is not None,
        "machine": platform.machine(),
        "glibc": platform.libc_ver()[1],
        "time": time.time(),
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "is_root": os.geteuid() == 0,
        "has_systemd": os.path.isdir("/run/systemd/system"),
        "cpus": len(os.sched_getaffinity(0)),
        "free_bytes": {folder: _free_bytes(folder) for folder in arguments["writable"]},
        "interfaces": _interfaces(),
        "route": _source_address(arguments["server"]),
        "accounts": {name: _account(name) for name in arguments["accounts"]},
        "files": {path: _digest(path) for path in arguments["files"]},
        "folders": [path for path in arguments["folders"] if os.path.isdir(path)],
        "environments": _environments(prefix),
        "current": _link(os.path.join(prefix, "current")),
        "manifest": read_manifest(prefix),
        "daemons": {
            name: {"pid": each.pid, "environment": os.path.basename(each.environment)}
            for name, each in find_daemons(prefix).items()
        },
        "job_processes": len([each for each in find_processes(prefix) if not each.daemon]),
        "server_roots": _fingerprints(os.path.join(state, "identity", "roots.pem")),
        "node_roots": _fingerprints(os.path.join(state, "node-identity", "roots.pem")),
    }


def _free_bytes(folder: str) -> int:
    """Return the free bytes of the file system on which a folder is or will be."""
    while not os.path.isdir(folder) and folder != "/":
        folder = os.path.dirname(folder)
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _interfaces() -> dict[str, str]:
    """Return the IPv4 address of each interface, or an empty text if it has none."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probing:
        for _number, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probing, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                found[name] = socket.inet_ntoa(answer[20:24])
            except OSError:
                found[name] = ""
    return found


def _source_address(server: str) -> str:
    """Return this host's address on the route to the server; empty if there is no route.

    Nothing is sent.
    """
    try:
        family, kind, *_, address = socket.getaddrinfo(server, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probing:
            probing.connect(address)
            return str(probing.getsockname()[0])
    except OSError:
        return ""


def _account(name: str) -> list[int] | None:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    return [found.pw_uid, found.pw_gid]


def _digest(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _environments(prefix: str) -> list[str]:
    """Return the names of the completely installed Python environments, one for each release."""
    try:
        names = sorted(os.listdir(prefix))
    except OSError:
        return []
    return [
        name
        for name in names
        if is_environment(name) and os.path.exists(os.path.join(prefix, name, COMPLETE))
    ]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _fingerprints(path: str) -> list[str]:
    """Return the SHA-256 of each certificate in a file; empty if the file cannot be read."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
    except (OSError, ValueError):
        return []
    return [
        hashlib.sha256(base64.b64decode(body)).hexdigest() for body in _CERTIFICATE.findall(text)
    ]

"""Start and stop the daemons of this host, with systemd or as plain processes."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from typing import Any, BinaryIO

from pliant.deploy.on_host.accounts import check, environment, has_account, run_as
from pliant.deploy.on_host.host_error import HostError
from pliant.deploy.on_host.manifest import changed_manifest
from pliant.deploy.on_host.processes import end_process, find_daemons

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.05
#: The daemon replaces the shell, which opens the log with the rights of the account.
_SHELL = 'exec "$@" >>"$0" 2>&1 </dev/null'
_TAIL_LINES = 8
#: Logs may be large.
_TAIL_BYTES = 4096


def start_daemon(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Start or restart a daemon as a plain process, and wait until it is ready.

    The daemon reports that it is ready to a socket of this process, by the protocol of systemd.

    Args:
        arguments: ``daemon``, its ``argv``, ``account`` and ``log``, and the folders ``prefix``,
            ``state`` and ``run``.

    Returns:
        The ``pid`` of the daemon.
    """
    old = find_daemons(arguments["prefix"]).get(arguments["daemon"])
    if old is not None:
        end_process(old.pid, STOP_TIMEOUT_S)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(f"\0pliant-deploy-{secrets.token_hex(8)}")
        process = _start(arguments, "@" + ready.getsockname()[1:].decode("ascii"))
        _wait_until_ready(arguments, process, ready)
    process.returncode = 0  # it outlives this process, so `subprocess` must not warn
    _note_started(arguments)
    return {"pid": process.pid}


def _note_started(arguments: dict[str, Any]) -> None:
    """Remove a daemon from the list of those to restart, in the record of this host's deployment.

    It has been started and has read its new files.

    Args:
        arguments: the name of the ``daemon``, and ``prefix``, the folder of installations, which
            has the record.
    """
    with changed_manifest(arguments["prefix"]) as record:
        if arguments["daemon"] in record["to_restart"]:
            record["to_restart"].remove(arguments["daemon"])


def _start(arguments: dict[str, Any], socket_name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _SHELL, arguments["log"], *arguments["argv"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        umask=0o077,
        env={**environment(arguments), "NOTIFY_SOCKET": socket_name},
        **run_as(arguments["account"]),
    )


def _wait_until_ready(
    arguments: dict[str, Any], process: subprocess.Popen[bytes], ready: socket.socket
) -> None:
    log, name = arguments["log"], arguments["daemon"]
    deadline = time.monotonic() + START_TIMEOUT_S
    ready.settimeout(_POLL_S)
    while True:
        try:
            if b"READY=1" in ready.recv(4096):
                return
        except TimeoutError:
            pass
        if process.poll() is not None:
            how = f"ended with {process.returncode}"
        elif time.monotonic() > deadline:
            how = f"is not ready after {START_TIMEOUT_S:.0f} s"
        else:
            continue
        raise HostError(f"{name} {how}: {_tail(log)}", f"see {log} on the host")


def wait_connected(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Wait until a daemon has a TCP connection to the port of the server; return an empty record.

    Args:
        arguments: the name of the ``daemon``, its ``log``, the ``port`` of the server, ``prefix``,
            the folder of installations, and ``timeout_s``.

    Raises:
        HostError: the daemon has no connection after ``timeout_s``.
    """
    name, port = arguments["daemon"], arguments["port"]
    deadline = time.monotonic() + arguments["timeout_s"]
    while True:
        found = find_daemons(arguments["prefix"]).get(name)
        if found is not None and _is_connected(found.pid, port):
            return {}
        if time.monotonic() > deadline:
            state = "does not run" if found is None else "is not connected"
            raise HostError(
                f"{name} {state}: {_tail(arguments['log'])}",
                f"check that the host reaches port {port} of the server",
            )
        time.sleep(4 * _POLL_S)


def _is_connected(pid: int, port: int) -> bool:
    """Return whether a process has an established TCP connection to a port."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        inodes |= {
            f"socket:[{row[9]}]"
            for row in rows
            if row[3] == "01" and int(row[2].rpartition(":")[2], 16) == port
        }
    folder = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(f"{folder}/{each}") in inodes for each in os.listdir(folder))
    except OSError:
        return False  # it has ended, or has just closed a file


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
        return " | ".join(text.splitlines()[-_TAIL_LINES:])
    except OSError as error:
        return f"{path}: {error.strerror}"


def stop_daemon(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Stop a daemon that runs as a plain process, if it is running; its jobs keep running.

    Args:
        arguments: the name of the ``daemon``, and ``prefix``, the folder of installations.

    Returns:
        An empty record: there is nothing to report.
    """
    found = find_daemons(arguments["prefix"]).get(arguments["daemon"])
    if found is not None:
        end_process(found.pid, STOP_TIMEOUT_S)
    return {}


def use_systemd(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Let systemd make the account and folders that its files describe, and load its units.

    Args:
        arguments: the name of the ``account``, and ``prefix``, the folder of installations.

    Returns:
        An empty record: there is nothing to report.
    """
    with changed_manifest(arguments["prefix"]) as record:
        if not has_account(arguments["account"]):
            check(["systemd-sysusers"])
            record["account"] = arguments["account"]
    check(["systemd-tmpfiles", "--create"])
    check(["systemctl", "daemon-reload"])
    return {}


def start_unit(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Enable and restart a systemd unit, and wait until its daemon is ready.

    Args:
        arguments: the name of the ``unit`` and of its ``daemon``, and ``prefix``, the folder of
            installations.

    Returns:
        An empty record: there is nothing to report.
    """
    unit = arguments["unit"]
    with changed_manifest(arguments["prefix"]) as record:
        if unit not in record["units"]:
            record["units"].append(unit)
    # An earlier run may have failed between writing the unit and reading it.
    check(["systemctl", "daemon-reload"])
    check(["systemctl", "enable", "pliant.target", unit])
    # After a unit failed too often, systemd refuses to start it.
    subprocess.run(["systemctl", "reset-failed", unit], check=False, capture_output=True)
    try:
        check(["systemctl", "restart", unit])
    except HostError as error:
        done = subprocess.run(
            ["journalctl", "-q", "--no-pager", "-n", str(_TAIL_LINES), "-o", "cat", "-u", unit],
            check=False,
            capture_output=True,
            text=True,
        )
        lines = " | ".join(done.stdout.splitlines())
        raise HostError(f"{error}: {lines}", f"see `journalctl -u {unit}` on the host") from None
    _note_started(arguments)
    return {}


def stop_unit(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Stop and disable a systemd unit, if it is installed; the jobs of its daemon keep running.

    Args:
        arguments: the name of the ``unit``.

    Returns:
        An empty record: there is nothing to report.
    """
    if os.path.exists(f"/etc/systemd/system/{arguments['unit']}.service"):
        check(["systemctl", "disable", "--now", arguments["unit"]])
    return {}

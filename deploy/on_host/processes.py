"""The processes of Pliant on this host, found in /proc."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import NamedTuple

#: What a daemon is called in hosts.yaml and in plans, by its subcommand of `pliant`.
_SUBCOMMANDS = {"server": "server", "nodectl": "node", "login-agent": "login"}
_HELPER = "pliant.nodectl.root_helper"
_LAUNCHER_MODULE = "pliant.nodectl.launcher"
#: A process of the controller that starts shims; it also runs on a node without jobs.
LAUNCHER = "launcher"
#: Version and digest of a release. The folder of environments may hold other folders of its owner,
#: such as `env-py311` in a home folder, which are never touched.
_ENVIRONMENT = re.compile(r"env-[^/]+-[0-9a-f]{8}", re.ASCII)
_POLL_S = 0.05


class Process(NamedTuple):
    """A process whose program is in the Python environment of a release of Pliant."""

    pid: int
    parent: int
    #: ``server``, ``node``, ``login``, ``helper``, ``launcher``, or empty for any other.
    daemon: str
    #: The folder of its environment.
    environment: str


def is_environment(name: str) -> bool:
    """Return whether a folder's name is that of a Python environment of a release."""
    return _ENVIRONMENT.fullmatch(name) is not None


def find_processes(prefix: str) -> list[Process]:
    """Return the processes whose programs are in Python environments below ``prefix``."""
    start = os.path.join(prefix, "")
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = os.fsdecode(file.read()).split("\0")
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended
        folder = words[0].removeprefix(start).partition("/")[0]
        if words[0].startswith(start) and is_environment(folder) and state != "Z":
            path = os.path.join(prefix, folder)
            found.append(Process(int(name), int(parent), _daemon(words, path), path))
    return found


def find_daemons(prefix: str) -> dict[str, Process]:
    """Return the running daemons by name.

    A forked child of a daemon has the same command line and so the same name; it is left out.
    """
    found = [each for each in find_processes(prefix) if each.daemon not in ("", LAUNCHER)]
    pids = {each.pid: each.daemon for each in found}
    return {each.daemon: each for each in found if pids.get(each.parent) != each.daemon}


def _daemon(words: list[str], environment: str) -> str:
    if _HELPER in words[1:5]:
        return "helper"
    if _LAUNCHER_MODULE in words[1:5]:
        return LAUNCHER
    if words[1:2] == [f"{environment}/bin/pliant"] and len(words) > 2:
        return _SUBCOMMANDS.get(words[2], "")
    return ""


def end_process(pid: int, timeout_s: float) -> None:
    """End a process with SIGTERM, after the timeout with SIGKILL, and wait until it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + timeout_s
        while is_alive(pid):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        else:
            return


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""Checks after the demo; each prints a line with ``ok`` or ``FAILED``."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pliant.client.cluster import process_table

_SHARED_MEMORY = "/dev/shm"
#: The name of a mapped segment that has not been removed.
_SEGMENT = re.compile(rf"{_SHARED_MEMORY}/(\S+)$", re.MULTILINE)
_CHECKSUM = re.compile(r"^checksum\s+([0-9a-fA-F]+)\s*$", re.MULTILINE)


class Checks:
    """Prints the result of each check, and keeps the names of those that failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def check(self, what: str, fault: str) -> None:
        """Print the result of the check ``what``, which has passed if ``fault`` is empty."""
        if fault:
            self.failed.append(what)
        print(f"FAILED  {what}: {fault}" if fault else f"ok      {what}", flush=True)


def resizes(events: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """Return how many shrinks and how many growths were carried out."""
    shrinks = expansions = 0
    for event in events:
        if event["kind"] == "job.resized":
            data = event.get("data") or {}
            before, after = int(data.get("from") or 0), int(data.get("to") or 0)
            shrinks += after < before
            expansions += after > before
    return shrinks, expansions


def checksum(output: str) -> str:
    """Return the checksum in the output of the program heat; empty if there is none."""
    found = _CHECKSUM.findall(output)
    return str(found[-1]) if found else ""


def compare(reference: str, found: str) -> str:
    """Return how a checksum differs from the expected checksum; empty if they are equal."""
    if not reference:
        return "the program alone printed no checksum"
    if not found:
        return "the job printed no checksum"
    return "" if found == reference else f"{found}, alone it was {reference}"


def shared_memory() -> set[str]:
    """Return the names of this user's segments of shared memory."""
    names = set()
    for entry in _entries(_SHARED_MEMORY):
        try:
            if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                names.add(entry.name)
        except FileNotFoundError:
            continue  # it went while we looked
    return names


def segments_of(pids: Iterable[int]) -> set[str]:
    """Return the names of the segments of shared memory that processes have mapped."""
    found: set[str] = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
                found.update(_SEGMENT.findall(maps.read()))
        except OSError:
            continue  # it has gone, or is somebody else's
    return found


class SharedMemory:
    """Finds the shared memory segments of the demo among the segments of other programs."""

    _EVERY_S = 0.25

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._before = shared_memory()
        self._seen: set[str] = set()
        self._next = 0.0

    def note(self, *, now: bool = False) -> None:
        """Record the segments that the demo's processes have mapped at this time.

        May be called often: it does nothing if the last call that recorded is less than `_EVERY_S`
        seconds ago, unless ``now`` is true.
        """
        if now or time.monotonic() >= self._next:
            self._seen |= segments_of(processes_naming(self._directory)) - self._before
            self._next = time.monotonic() + self._EVERY_S

    def remove_leaked(self) -> list[str]:
        """Remove the demo's segments that no process uses, and return their names."""
        leaked = sorted((self._seen & shared_memory()) - segments_of(process_table.pids()))
        for name in leaked:
            os.unlink(os.path.join(_SHARED_MEMORY, name))
        return leaked


def processes_naming(directory: str) -> list[int]:
    """Return the living processes whose command line or environment names a directory."""
    return process_table.find(
        lambda pid: any(
            directory in text
            for text in (*process_table.command_line(pid), *process_table.environment(pid).values())
        )
    )


def zombies() -> list[int]:
    """Return the ids of children of this process that have ended and were not reaped."""
    return [
        pid
        for pid in process_table.pids()
        if process_table.parent(pid) == os.getpid() and not process_table.alive(pid)
    ]


def sockets(directory: str) -> list[str]:
    """Return the paths of the socket files below a directory."""
    found = []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    found.append(path)
            except FileNotFoundError:
                continue  # it went while we looked
    return found


def shorten_list(items: Sequence[object]) -> str:
    """Return at most ten items as a text; empty if there are none."""
    return ", ".join(map(str, items[:10])) + (" ..." if len(items) > 10 else "")


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except FileNotFoundError:
        return []

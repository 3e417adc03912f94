"""The record of what was deployed on this host: `deployment.json` in the folder of installations.

Every operation that changes the host saves the record. So a removal finds everything, also after a
deployment that failed half-way.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pliant.deploy.on_host.host_error import HostError

FILE = "deployment.json"
LOCK = "deployment.lock"
#: The longest operation that another administrator may have started is an installation.
LOCK_TIMEOUT_S = 300.0
_POLL_S = 0.1
#: Version of the form of the record.
VERSION = 1
#: What a new record holds. `environment` and `previous` are names of folders.
EMPTY: dict[str, Any] = {
    "version": VERSION,
    "cluster": "",
    "environment": "",
    "previous": "",
    #: SHA-256 of each file as it was written, by path.
    "files": {},
    #: Folders that were made, parents first.
    "folders": [],
    #: Account that was made; empty if it was there.
    "account": "",
    #: Units of systemd that were enabled.
    "units": [],
    #: Daemons whose files were written since their start.
    "to_restart": [],
}


def read_manifest(prefix: str) -> dict[str, Any] | None:
    """Return the record of what was deployed on this host below ``prefix``; None if nothing was.

    Raises:
        HostError: the file is damaged or of a newer version.
    """
    path = os.path.join(prefix, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict) or type(found.get("version")) is not int:
        raise HostError(f"{path} is damaged", "restore it from a backup of the host, or remove it")
    if found["version"] > VERSION:
        raise HostError(
            f"{path} has version {found['version']}, this Pliant knows {VERSION}",
            "use the newer version of Pliant that deployed this host",
        )
    return {**EMPTY, **found}


@contextmanager
def locked(prefix: str) -> Iterator[None]:
    """Within this context, make operations of other administrators on this host wait.

    The lock is a file below ``prefix``. The very first operation has no lock, because this folder
    does not exist yet.

    Raises:
        HostError: another operation kept the lock for `LOCK_TIMEOUT_S` seconds.
    """
    if not os.path.isdir(prefix):
        yield
        return
    path = os.path.join(prefix, LOCK)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise HostError(
                        "another `pliant deploy` is changing this host",
                        "wait until it has ended, and run the command again",
                    ) from None
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(lock)


@contextmanager
def changed_manifest(prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the record of what was deployed on this host, to be changed in place, and save it.

    It is saved also after an error, and is empty at the first deployment. Within this context,
    other operations on this host wait (`locked`).
    """
    with locked(prefix):
        record = read_manifest(prefix)
        if record is None:
            record = json.loads(json.dumps(EMPTY))
        try:
            yield record
        finally:
            os.makedirs(prefix, mode=0o755, exist_ok=True)
            replace_file(os.path.join(prefix, FILE), json.dumps(record, indent=1) + "\n")


def replace_file(path: str, text: str, mode: int = 0o644) -> None:
    """Replace a file atomically, so that a reader never sees a part of it."""
    draft = f"{path}.new"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    os.replace(draft, path)

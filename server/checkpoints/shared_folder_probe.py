"""Test whether nodes share the folder of checkpoints: each node reads a file when it registers.

A job can be started again on other nodes only if these find the checkpoints of the earlier ones. So
an administrator should learn of a node without the shared file system before a job needs it.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path

from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.protos.sanitize_text import sanitize_text

log = logging.getLogger(__name__)

#: The value for users if a node shares the folder.
SHARED = "shared"
_MAX_TEXT = 300


class SharedFolderProbe:
    """Tests whether nodes share the folder of checkpoints.

    It holds the server's test file and the last result of each node.
    """

    def __init__(self, folder: Path, cluster: str) -> None:
        """Prepare the test of a folder.

        Args:
            folder: the folder of the checkpoints.
            cluster: the name of the cluster. It is part of the file's name, because clusters may
                use the same folder.
        """
        self._folder, self._prefix = folder, f".{cluster}.test-"
        self._content = secrets.token_hex(16).encode("ascii")
        self._path: Path | None = None
        self._lock = threading.Lock()
        self._results: dict[NodeName, str] = {}

    @property
    def path(self) -> bytes:
        """Return the path of the test file, for nodes; empty if the server could not write it."""
        return os.fsencode(self._path) if self._path else b""

    def write(self, *, make_folder: bool) -> None:
        """Write the test file that nodes read, and remove those of earlier servers; log a failure.

        Args:
            make_folder: whether to make the folder of the checkpoints if it is missing. It is False
                if an administrator has named the folder, because a file system may not be mounted
                yet.
        """
        # The name is random, because everybody may write to a folder for all users.
        path = self._folder / f"{self._prefix}{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            if make_folder:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.scandir(self._folder) as entries:  # there may be very many of them
                for entry in entries:
                    if entry.name.startswith(self._prefix):
                        with suppress(OSError):  # another account has made it
                            os.unlink(entry.path)
            with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(self._content)
        except OSError as error:
            log.warning(
                "it is not tested whether nodes share the folder of checkpoints %s: %s; make the "
                "folder, with `chmod 1777` if jobs run as their users, and restart the server",
                self._folder,
                error.strerror,
            )
            return
        self._path = path

    def remove(self) -> None:
        """Remove the test file that nodes read."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def evaluate(self, node: NodeName, report: node_pb2.CheckpointFolder) -> str:
        """Return `SHARED`, or why jobs on a node cannot use the folder; log a changed result.

        Args:
            node: the node that has read the file.
            report: the node's result of the test.
        """
        result = sanitize_text(report.problem)[:_MAX_TEXT] or SHARED
        if result == SHARED and report.content != self._content:
            result = "it has another folder in this place"
        with self._lock:
            before, self._results[node] = self._results.get(node, SHARED), result
        if result not in (SHARED, before):
            log.warning(
                "node %s cannot use the folder of checkpoints %s: %s. A job with processes there "
                "cannot be suspended, and loses its work if it is started again; share the folder, "
                "or name a shared one with `checkpoints`",
                node,
                self._folder,
                result,
            )
        elif result == SHARED != before:
            log.info("node %s shares the folder of checkpoints now", node)
        return result

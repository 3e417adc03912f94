"""The secret of the cluster, shared by the server and its node controllers.

The server sends programs, environments and tokens to a node, and a controller starts whatever it is
ordered to start. So the server creates a file that only its owner can read, and both sides prove
that they know its content before they send anything else (see `pliant.protos.hmac_handshake`).
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

FILE_NAME = "node.secret"
_BYTES = 32


def load_secret(path: Path) -> str:
    """Return the secret of the cluster from a file, which is created if it is missing.

    Raises:
        OSError: if the file cannot be read, is damaged, or other users can read it.
    """
    if not path.exists():
        _create_secret(path)
    with path.open(encoding="ascii", errors="replace") as file:
        found = os.fstat(file.fileno())
        mode, owner = stat.S_IMODE(found.st_mode), found.st_uid
        text = file.read().strip()
    remedy = "remove it and restart, the server makes a new one"
    if owner not in (os.geteuid(), 0):
        raise OSError(f"{path} belongs to the user with id {owner}; {remedy}")
    if mode & 0o077:
        raise OSError(f"{path} is accessible to other users (mode {mode:04o}); {remedy}")
    if not text:
        raise OSError(f"{path} is empty; {remedy}")
    if not (text.isascii() and text.isprintable()):
        raise OSError(f"{path} is damaged; {remedy}")
    return text


def _create_secret(path: Path) -> None:
    """Create a file with a new secret that only its owner can read, in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="ascii") as file:
        file.write(f"{secrets.token_hex(_BYTES)}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)

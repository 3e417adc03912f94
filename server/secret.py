"""The secret of the cluster: who knows it may register nodes.

A port of the loopback interface is open to every user of the machine, and a node is sent programs,
environments and tokens. So the server makes a file that only its owner can read, and a controller
must show what is in it.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from pliant.protos.metadata import NODE_SECRET

FILE_NAME = "node.secret"
_BYTES = 32


def load_secret(path: Path) -> str:
    """Read the secret, or make one.

    Raises:
        OSError: it cannot be read, or others can read it.
    """
    if not path.exists():
        _make(path)
    with path.open(encoding="ascii", errors="replace") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        text = file.read().strip()
    if mode & 0o077:
        raise OSError(f"{path}: others may use it (mode {mode:04o}); remove it, a new one is made")
    if not text:
        raise OSError(f"{path} is empty; remove it, a new one is made")
    if not (text.isascii() and text.isprintable()):
        raise OSError(f"{path} is damaged; remove it, a new one is made")
    return text


def _make(path: Path) -> None:
    """Write a new secret so that nobody ever sees a part of it, or has a chance to open it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="ascii") as file:
        file.write(f"{secrets.token_hex(_BYTES)}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def knows(metadata: Iterable[tuple[str, str | bytes]] | None, secret: str) -> bool:
    """Whether what came with a stream holds the secret; takes as long whatever it holds."""
    shown = next((value for key, value in metadata or () if key == NODE_SECRET), "")
    given = shown if isinstance(shown, bytes) else shown.encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, secret.encode("ascii"))

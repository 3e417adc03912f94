"""Acting as another account for a moment, for what the kernel notes about sockets and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Have the kernel take this process for one of another account."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)

"""What a shim has to say to an administrator; nothing may depend on whether it can be written."""

from __future__ import annotations

import os
from contextlib import suppress


def complain(text: str) -> None:
    """Add a line to the shims' log, unless its disk is full, too."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))

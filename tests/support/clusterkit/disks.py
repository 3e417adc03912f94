"""Small file systems that tests fill; to mount one needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Put a folder on a file system of its own; skip the test where that is not allowed.

    Args:
        folder: it is there, and empty.
        size: as `mount` takes it: ``24m``.
    """
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "pliant-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room; the file that takes it all."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    assert os.statvfs(disk).f_bavail == 0
    return ballast

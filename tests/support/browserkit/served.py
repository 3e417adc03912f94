"""A dashboard process of a cluster for a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from testkit import wait_until


class Served:
    """``pliant dashboard`` for the cluster in a run folder; use it as a context manager."""

    def __init__(self, run: Path, log: Path, *options: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "pliant.client.commands.cli", "dashboard", "--port", "0"]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, *options],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PLIANT_RUN_DIR": str(run)},
            )
        wait_until(lambda: "to share" in self.log(), what="the address of the dashboard")

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def log(self) -> str:
        """Return what it has printed."""
        return self._log.read_text()

    def address(self, start: str = "dashboard:") -> str:
        """Return the address in the line that begins like this."""
        lines = [line for line in self.log().splitlines() if line.startswith(start)]
        return lines[0].split()[-1]

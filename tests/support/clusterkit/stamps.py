"""Programs that leave a trail, so that two runs of a job at the same time are found out."""

from __future__ import annotations

import sys
from pathlib import Path

#: Appends ``RUN TIME`` every few milliseconds, until a file is there; TERM is not for it.
_PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
trail = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while not os.path.exists(sys.argv[2]):
    os.write(trail, f"{os.environ['PLIANT_RUN']} {time.monotonic()}\\n".encode())
    time.sleep(0.005)
"""


class Trail:
    """What the processes of a job write while they live, all of them on this host."""

    def __init__(self, folder: Path) -> None:
        self._trail, self._gate = folder / "trail", folder / "gate"

    @property
    def command(self) -> list[str]:
        """The program with its arguments."""
        return [sys.executable, "-S", "-c", _PROGRAM, str(self._trail), str(self._gate)]

    def end(self) -> None:
        """Let the processes end."""
        self._gate.touch()

    def lives(self) -> dict[int, tuple[float, float]]:
        """The first and the last sign of each run, on the monotonic clock."""
        found: dict[int, tuple[float, float]] = {}
        lines = self._trail.read_text().splitlines() if self._trail.exists() else []
        for line in lines:
            run, at = line.split()
            first, _ = found.get(int(run), (float(at), 0.0))
            found[int(run)] = (first, float(at))
        return found

    def overlap(self) -> bool:
        """Whether a run began while an earlier one still lived."""
        lives = self.lives()
        return any(lives[run][0] <= lives[run - 1][1] for run in lives if run - 1 in lives)

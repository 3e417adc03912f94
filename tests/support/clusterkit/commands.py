"""The commands as a user types them."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(sysconfig.get_path("scripts"))


@dataclass(frozen=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The only line of the error; more than one fails the test."""
        lines = self.err.splitlines()
        assert len(lines) == 1, f"one line expected: {self}"
        return lines[0]


def run_command(
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Said:
    """Run an installed command; it never answers with a traceback."""
    done = subprocess.run(
        [str(SCRIPTS / words[0]), *words[1:]],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    said = Said(done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in said.out + said.err, said
    assert said.code >= 0, f"{words} was ended by signal {-said.code}: {said}"
    return said

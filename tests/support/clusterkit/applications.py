"""Small problems for the applications in `examples`, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from testkit.repository import ROOT

#: Runs an application whose pauses end when a file appears.
PACED = ROOT / "tests" / "examples" / "paced.py"


def problem(name: str, folder: Path, length: int = 1, pause: float = 0.0) -> list[str]:
    """Return the arguments of a small problem.

    ``length`` is a number of resizes: with a pause (seconds in each step) the problem takes at
    least some seconds for each of them, or a second without any. It has checkpoints all the time.
    """
    return _PROBLEMS[name](folder, length, pause)


def plain(name: str, folder: Path, length: int = 1) -> list[str]:
    """Return the command line, for a Python, of an undisturbed run."""
    return ["-m", f"pliant.examples.{name}", *problem(name, folder, length)]


def paced(name: str, folder: Path, hurry: Path, length: int = 1) -> list[str]:
    """Return the command line, for a Python, of a run that takes its time until a file appears."""
    return [str(PACED), name, str(hurry), *problem(name, folder, length, 0.1)]


def checksum(text: str) -> str:
    """Return the line with the checksum: there must be one."""
    (line,) = [line for line in text.splitlines() if line.startswith("checksum ")]
    return line


def settings_file(name: str, folder: Path, **changes: Any) -> str:
    """Write the shipped input of an application with some values changed; return its path."""
    values = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    path = folder / f"{name}-{changes['pause_s']}.yaml"
    path.write_text(yaml.safe_dump({**values, **changes}))
    return str(path)


def _heat(folder: Path, length: int, pause: float) -> list[str]:
    plate = {"rows": 64, "columns": 32, "tolerance": 0.0, "iterations": 40 * length}
    return [settings_file("heat", folder, **plate, every=2, save_every=10, pause_s=pause)]


def _master_worker(folder: Path, length: int, pause: float) -> list[str]:
    frequencies = list(range(15 * length))
    changes = {"panels": 100, "frequencies": frequencies, "batch": 4, "pause_s": pause}
    return [settings_file("master_worker", folder, **changes)]


def _cg(folder: Path, length: int, pause: float) -> list[str]:
    rows = 80 * length  # of a chain, along which each step gets one row further from both ends
    matrix = folder / "chain.mtx"
    if not matrix.exists():
        lines = [f"{row} {row} 2" for row in range(1, rows + 1)]
        lines += [f"{row} {row - 1} -1" for row in range(2, rows + 1)]
        head = "%%MatrixMarket matrix coordinate real symmetric\n% a chain"
        matrix.write_text("\n".join([head, f"{rows} {rows} {len(lines)}", *lines]))
    return [str(matrix), *_steps(10_000, 2, pause)]


def _steps(steps: int, every: int, pause: float) -> list[str]:
    words = {"steps": steps, "every": every, "save-every": 5, "pause": pause}
    return [word for key, value in words.items() for word in (f"--{key}", str(value))]


def _with(*words: str, steps: int = 40, every: int = 2) -> Callable[[Path, int, float], list[str]]:
    return lambda _, length, pause: [*words, *_steps(steps * length, every, pause)]


_PROBLEMS: dict[str, Callable[[Path, int, float], list[str]]] = {
    "heat": _heat,
    "master_worker": _master_worker,
    "ft": _with("--size", "16"),
    "cg": _cg,
    "nbody": _with("--stars", "60"),
    "md": _with("--edge", "5", steps=30, every=1),
    "amr": _with("--blocks", "1000"),  # which is never too many for one process
}
NAMES = list(_PROBLEMS)

"""What the benchmarks share: a private cluster, and figures as medians with their spread."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pliant.client.api import Client

#: Programs that the benchmarks submit.
APPS = Path(__file__).parent / "apps"


@contextmanager
def cluster(nodes: int, slots: int, *options: str) -> Iterator[tuple[Client, Path]]:
    """A cluster of its own on this machine and a folder for output; both are gone afterwards."""
    base = Path(tempfile.mkdtemp(prefix="pliant-bench-"))
    env = {"PLIANT_STATE_DIR": str(base / "state"), "PLIANT_RUN_DIR": str(base / "run")}
    # As installed: commands that compile their modules each time take a third longer.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    old = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        _pliant("up", "--nodes", str(nodes), "--slots", str(slots), "--detach", *options)
        (base / "out").mkdir()
        with Client() as client:
            yield client, base / "out"
    finally:
        _pliant("down")
        for name, value in old.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(base, ignore_errors=True)


def _pliant(*arguments: str) -> None:
    command = [str(Path(sys.executable).parent / "pliant"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")


def figures(samples: Sequence[float], unit: float = 1e3) -> str:
    """``p50 p95 [min-max] n`` of samples in seconds, printed in milliseconds."""
    scaled = sorted(sample * unit for sample in samples)
    p95 = scaled[min(len(scaled) - 1, int(0.95 * len(scaled)))]
    return (
        f"p50 {statistics.median(scaled):7.1f}  p95 {p95:7.1f}  "
        f"[{scaled[0]:.1f}-{scaled[-1]:.1f}]  n={len(scaled)}"
    )


def verdict(name: str, value: float, budget: float, unit: str, *, at_least: bool = False) -> bool:
    """Print a figure beside its budget; whether it is within."""
    good = value >= budget if at_least else value <= budget
    sign = ">=" if at_least else "<="
    print(f"{'ok  ' if good else 'OVER'} {name}: {value:.1f} {unit} (budget {sign} {budget:g})")
    return good

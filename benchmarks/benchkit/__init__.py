"""Common parts of benchmarks: a private cluster, and figures as medians with their spread."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pliant.client.api import Client
from pliant.client.client_errors import NoServerError

#: Programs that the benchmarks submit.
APPS = Path(__file__).parents[1] / "apps"


@contextmanager
def cluster(
    nodes: int, slots: int, *options: str, **settings: object
) -> Iterator[tuple[Client, Path]]:
    """Yield a client of a new cluster on this machine and a folder for output; remove both later.

    Args:
        nodes: number of nodes.
        slots: number of processors of each node.
        options: further options of ``pliant up``.
        settings: keys and values of the server's configuration.
    """
    with folders() as base:
        if settings:
            config = base / "server.yaml"
            config.write_text(json.dumps(settings))  # JSON is YAML, too
            options = (*options, "--config", str(config))
        try:
            _pliant("up", "--nodes", str(nodes), "--slots", str(slots), "--detach", *options)
            (base / "out").mkdir()
            with Client() as client:
                yield client, base / "out"
        finally:
            _pliant("down")


@contextmanager
def folders() -> Iterator[Path]:
    """Yield a new folder for the state and run folders of a cluster; remove it afterwards."""
    base = Path(tempfile.mkdtemp(prefix="pliant-bench-"))
    env = {"PLIANT_STATE_DIR": str(base / "state"), "PLIANT_RUN_DIR": str(base / "run")}
    # As installed: commands that compile their modules each time take a third longer.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    old = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield base
    finally:
        for name, value in old.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(base, ignore_errors=True)


def answering(client: Client, within_s: float = 60.0) -> float:
    """Wait until the server answers a request; return when it did, in seconds since the epoch."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            client.nodes()
            return time.time()
        except NoServerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def busy() -> str:
    """Return a text with the load and the number of processors of this machine."""
    load = os.getloadavg()
    return f"load {load[0]:.1f} {load[1]:.1f} {load[2]:.1f} on {os.cpu_count()} processors"


def _pliant(*arguments: str) -> None:
    command = [str(Path(sys.executable).parent / "pliant"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")


def in_namespace(program: str, transport: str) -> int:
    """Run a benchmark for one transport and return its exit code.

    The transport ucx uses an outer interface of the machine unless there is only loopback, so it
    runs in a network namespace of its own. Without root, ucx is skipped with exit code 0.
    """
    command = [sys.executable, program, transport]
    if transport == "ucx":
        if os.geteuid() != 0:
            print("ucx: skipped, a network namespace of its own needs root")
            return 0
        helper = str(Path(__file__).parent / "loopback_up.py")
        script = '"$0" "$1" && shift && exec "$@"'
        command = ["unshare", "-n", "sh", "-c", script, sys.executable, helper, *command]
    return subprocess.run(command, check=False).returncode


def figures(samples: Sequence[float], unit: float = 1e3) -> str:
    """Return the text ``p50 p95 [min-max] n`` of samples, by default in ms for samples in seconds.

    Args:
        samples: the measured values.
        unit: the factor by which each value is multiplied.
    """
    scaled = sorted(sample * unit for sample in samples)
    p95 = scaled[min(len(scaled) - 1, int(0.95 * len(scaled)))]
    return (
        f"p50 {statistics.median(scaled):7.1f}  p95 {p95:7.1f}  "
        f"[{scaled[0]:.1f}-{scaled[-1]:.1f}]  n={len(scaled)}"
    )


def verdict(name: str, value: float, budget: float, unit: str, *, at_least: bool = False) -> bool:
    """Print a figure next to its budget; return whether the figure is within the budget.

    With ``at_least``, the budget is the smallest allowed value, otherwise the largest.
    """
    good = value >= budget if at_least else value <= budget
    sign = ">=" if at_least else "<="
    print(f"{'ok  ' if good else 'OVER'} {name}: {value:.1f} {unit} (budget {sign} {budget:g})")
    return good

"""A server of its own, and one process that speaks the protocol of many node controllers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from bench_kit import APPS, answering

from pliant.client.api import Client


@contextmanager
def server(base: Path, **settings: object) -> Iterator[psutil.Process]:
    """Run a server without nodes; yield its process when it answers.

    Args:
        base: the folder that `bench_kit.folders` made.
        settings: of its configuration.
    """
    config = base / "server.yaml"
    config.write_text(json.dumps({"strategy": "fcfs", **settings}))  # JSON is YAML, too
    command = [sys.executable, "-m", "pliant.server", "--config", str(config)]
    with (
        (base / "server.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            with Client() as client:
                answering(client)
            while not (base / "run" / "server.address").exists():
                time.sleep(0.01)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


class Controllers:
    """The process of all controllers, and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str], began: float) -> None:
        self._process, self._began = process, began

    def next(self, kind: str) -> list[float]:
        """Wait for its next line, which is of this kind, and return the numbers in it."""
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if words[:1] != [kind]:
            raise SystemExit(f"expected {kind!r} from the nodes, got {words}")
        return [float(word) for word in words[1:]]

    def registered(self) -> float:
        """Wait until all are welcome; return the seconds since their process was started."""
        self.next("up")
        return time.perf_counter() - self._began


@contextmanager
def controllers(base: Path, number: int) -> Iterator[Controllers]:
    """Run the controllers of so many nodes, one slot each (`apps/nodes.py`)."""
    address = (base / "run" / "server.address").read_text().strip()
    command = [sys.executable, str(APPS / "nodes.py"), address]
    command += [str(base / "state" / "node.secret"), str(number)]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Controllers(process, began)
        finally:
            process.kill()


def used(process: psutil.Process) -> float:
    """Return the seconds of processor time that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)

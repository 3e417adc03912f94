from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from standin import Application, Server

APPS = Path(__file__).parent / "apps"

Start = Callable[..., Application]


@pytest.fixture
def started() -> Iterator[list[Application]]:
    """Take the applications that a test starts; they end with it, and what they said is shown."""
    started: list[Application] = []
    yield started
    for app in started:
        app.close()
        print(app.text())


@pytest.fixture
def start(tmp_path: Path, started: list[Application]) -> Start:
    """Start an application of the folder ``apps`` under the stand-in."""

    def run(name: str, size: int, *args: str, server: Server | None = None) -> Application:
        app = Application(tmp_path, [str(APPS / f"{name}.py"), *args], size, server)
        started.append(app)
        return app

    return run


HEAD = """
import atexit, os, sys, time
import numpy as np
from mpi4py import MPI
from pliant.appkit import *
import pliant.appkit.resize.executor

STOP = sys.argv[1]
def say(*words):  # one write, which other ranks cannot split
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def stop(job):
    time.sleep(0.01)
    return job.comm.bcast(os.path.exists(STOP) if job.comm.rank == 0 else None)

@malleable(sizes="1-8")
def main(job):
    job.on_offer(lambda _: True)  # also where it measured that more processes gain nothing
"""


@pytest.fixture
def run(tmp_path: Path, started: list[Application]) -> Start:
    """Run the body of a main function under the stand-in."""

    def begin(body: str, end: str = "", size: int = 2, after: str = "") -> Application:
        path = tmp_path / "program.py"
        main = textwrap.indent(textwrap.dedent(body) + end, "    ")
        path.write_text(f"{HEAD}{main}\nmain()\n{textwrap.dedent(after)}")
        app = Application(tmp_path, [str(path), str(tmp_path / "stop")], size)
        started.append(app)
        return app

    return begin

"""Ctrl-C at any moment of ``pliant demo`` leaves nothing behind.

``make demo``, which continuous integration runs after the tests, is the test of a whole demo.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from clusterkit.commands import SCRIPTS
from pliant.client.demo.checks import segments_of
from testkit import wait_until
from testkit.leaks import session_processes

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(150)]

SHARED_MEMORY = Path("/dev/shm")


@pytest.mark.parametrize("moment", ["starting a server", "submitted heat", "heat was shrunk"])
def test_ctrl_c_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    before = session_processes()
    with open(tmp_path / "out", "wb") as output:
        demo = subprocess.Popen(
            [str(SCRIPTS / "pliant"), "demo"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        wait_until(lambda: moment in (tmp_path / "out").read_text() or demo.poll() is not None)
        segments = segments_of(process.pid for process in session_processes() - before)
        os.kill(demo.pid, signal.SIGINT)
        code = demo.wait(60)
    said = (tmp_path / "out").read_text()
    assert (code, "Traceback" in said) == (130, False), said
    assert list(scratch.iterdir()) == []
    assert session_processes() - before == set()
    assert [name for name in segments if (SHARED_MEMORY / name).exists()] == []

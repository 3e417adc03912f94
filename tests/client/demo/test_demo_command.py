from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pliant.client.demo import checks
from pliant.client.demo.demo_command import main
from pliant.client.demo.view import DemoDisplay, Snapshot, holders, line, progress
from testkit import wait_until

Capture = pytest.CaptureFixture[str]


def resized(job: int, before: int, after: int) -> dict[str, Any]:
    data = {"from": before, "to": after, "processors": list(range(after))}
    return {"time": 0.0, "job": job, "kind": "job.resized", "data": data}


def test_resizes_are_counted() -> None:
    events = [resized(1, 8, 4), resized(1, 4, 6), resized(2, 2, 1), {"kind": "job.ended"}]
    assert checks.resizes(events) == (2, 1)
    assert checks.resizes([]) == (0, 0)


def test_checksums_are_found_and_compared() -> None:
    assert checks.checksum("8 -> 4 processes\nchecksum 0aF1\n") == "0aF1"
    assert checks.checksum("no checksum here\n") == ""
    assert checks.compare("ab", "ab") == ""
    assert checks.compare("ab", "cd") == "cd, alone it was ab"
    assert checks.compare("", "cd") == "the program alone printed no checksum"
    assert checks.compare("ab", "") == "the job printed no checksum"


def test_checks_are_lines(capsys: Capture) -> None:
    made = checks.Checks()
    made.check("all is well", "")
    made.check("no socket is left", "/tmp/x")
    out = capsys.readouterr().out
    assert out == "ok      all is well\nFAILED  no socket is left: /tmp/x\n"
    assert made.failed == ["no socket is left"]


def test_sockets_are_found(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    assert checks.sockets(str(tmp_path)) == []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "deep" / "s"))
        assert checks.sockets(str(tmp_path)) == [str(tmp_path / "deep" / "s")]


def test_processes_and_zombies_are_found(tmp_path: Path) -> None:
    env = {**os.environ, "SOME": f"x={tmp_path}/state"}
    process = subprocess.Popen(["sleep", "60"], env=env)
    try:
        # One that has just begun shows its environment a moment later.
        wait_until(lambda: checks.processes_naming(str(tmp_path)) == [process.pid])
        process.kill()
        wait_until(lambda: process.pid in checks.zombies())
        assert checks.processes_naming(str(tmp_path)) == []
    finally:
        process.kill()
        process.wait()
    assert process.pid not in checks.zombies()


def test_shared_memory_that_is_left_is_removed(tmp_path: Path) -> None:
    name = f"pliant_test_{os.getpid()}"
    code = (
        "import mmap, os, sys\n"
        f"f = os.open('/dev/shm/{name}', os.O_RDWR | os.O_CREAT)\n"
        "os.ftruncate(f, 4096); m = mmap.mmap(f, 4096); print(flush=True); sys.stdin.read()"
    )
    memory = checks.SharedMemory(str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        memory.note()
        assert memory.remove_leaked() == []
        process.communicate()
        assert memory.remove_leaked() == [name]
        assert memory.remove_leaked() == []
    finally:
        process.kill()
        process.wait()
        Path("/dev/shm", name).unlink(missing_ok=True)


def test_the_view_tells_in_lines(capsys: Capture) -> None:
    job = {"id": 1, "name": "heat", "state": "RUNNING", "processors": 4}
    job["progress"] = {"iteration": 30, "iterations": 60}
    with DemoDisplay() as view:
        view.say("hello")
        view.show(Snapshot([job]))
        view.show(Snapshot([job]))
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(" s  hello")
    assert second.endswith(" s  heat running on 4 50%")
    assert line(Snapshot(), 1.0) == "  1.0 s  starting"
    assert progress({"state": "COMPLETED"}) == 1.0
    assert progress({}) == 0.0


def test_events_tell_which_job_holds_each_processor() -> None:
    events = [resized(1, 1, 3), {"kind": "job.ended", "job": 1}, resized(2, 4, 2)]
    assert holders(events[:1]) == {0: 1, 1: 1, 2: 1}
    assert holders(events) == {0: 2, 1: 2}


def test_a_picture_that_cannot_be_written(tmp_path: Path, capsys: Capture) -> None:
    assert main(["-o", str(tmp_path)]) == 1
    assert "is a directory; name a file in it" in capsys.readouterr().err


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pliant.client.demo.demo_command", *words],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

"""The record of the load of a job: its rows, its name, its size, and errors."""

from __future__ import annotations

import csv
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.shim.load_record_file import COLUMNS, LoadRecorder, record_path
from pliant.nodectl.world_folder import StartRequest
from testkit import wait_until

#: Computes in a child that ends, writes a file, and waits until a file exists.
PROGRAM = """
import os, sys, time
if not os.fork():
    while time.process_time() < 0.3:
        pass
    os._exit(0)
os.wait()
with open("data", "wb") as file:
    file.write(b"x" * 5_000_000)
open("working", "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
"""


def request(folder: Path, **changes: object) -> StartRequest:
    values = {
        **{"world": "7.1.0", "job": 7, "run": 1, "resize": 0, "type": "uni", "size": 1},
        **{"ranks": [(0, 0)], "argv": ["true"], "environment": {}, "directory": str(folder)},
        **{"stdout": str(folder / "pliant-7.out"), "node_name": "n1", "record_load_s": 0.01},
    }
    return StartRequest(**{**values, **changes})  # type: ignore[arg-type]


def rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.selector.close()


@pytest.mark.parametrize(
    ("stdout", "first_rank", "name"),
    [
        ("/d/pliant-17.out", None, "/d/pliant-17.load-n1.csv"),
        ("/d/pliant-17_3.out", None, "/d/pliant-17_3.load-n1.csv"),
        ("/d/result.17", None, "/d/result.17.load-n1.csv"),
        ("/d/.out", None, "/d/.out.load-n1.csv"),
        ("/d/100%t.log", None, "/d/100%t.load-n1.csv"),
        ("/d/100%%-%t", 0, "/d/100%-.load-n1.csv"),
        ("/dev/null", None, "/home/ann/pliant-7.load-n1.csv"),
        ("", None, "/home/ann/pliant-7.load-n1.csv"),
    ],
)
def test_the_name_is_that_of_the_output_and_of_the_node(
    stdout: str, first_rank: int | None, name: str
) -> None:
    asked = request(Path("/home/ann"), stdout=stdout, first_rank=first_rank)
    assert record_path(asked) == name


def test_a_second_world_appends_and_a_new_job_empties(loop: EventLoop, tmp_path: Path) -> None:
    path = tmp_path / "pliant-7.load-n1.csv"
    path.write_text("of an earlier job\n")
    for resize, truncate in ((0, float("inf")), (3, 0.0)):
        recorder = LoadRecorder(loop, request(tmp_path, resize=resize, truncate_before=truncate))
        recorder.start()
        recorder.close()
        recorder.close()
    assert path.read_text().count(",".join(COLUMNS)) == 1
    assert [(row["run"], row["resize"]) for row in rows(path)] == [("1", "0")] * 2 + [
        ("1", "3")
    ] * 2
    assert path.stat().st_mode & 0o777 == 0o666 & ~0o022


def test_a_job_that_is_not_recorded_has_no_file(loop: EventLoop, tmp_path: Path) -> None:
    recorder = LoadRecorder(loop, request(tmp_path, record_load_s=0.0))
    recorder.start()
    recorder.measure()
    recorder.close()
    assert not list(tmp_path.iterdir())


def test_the_file_has_a_largest_size(loop: EventLoop, tmp_path: Path) -> None:
    recorder = LoadRecorder(loop, request(tmp_path), max_bytes=20_000)
    recorder.start()
    output = tmp_path / "pliant-7.out"
    loop.after(60.0, loop.stop)

    def stop_when_full() -> None:
        if output.exists():
            loop.stop()
        loop.after(0.05, stop_when_full)

    stop_when_full()
    loop.run()
    assert "largest size" in output.read_text()
    path = tmp_path / "pliant-7.load-n1.csv"
    assert len(rows(path)) > 50
    assert path.stat().st_size <= 20_000
    recorder.close()
    assert output.read_text().count("\n") == 1


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_an_unusable_file_is_named_and_left_alone(
    loop: EventLoop, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "pliant-7.load-n1.csv"
    kept = tmp_path / "kept"
    kept.write_text("precious\n")
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(kept)
    else:
        os.mkfifo(path)
    recorder = LoadRecorder(loop, request(tmp_path))
    recorder.start()
    recorder.measure()
    recorder.close()
    assert str(path) in (tmp_path / "pliant-7.out").read_text()
    assert kept.read_text() == "precious\n"


@pytest.mark.cluster
def test_rows_continue_while_the_controller_is_gone(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    path = tmp_path / "out.load-n1.csv"
    world = World(
        [sys.executable, "-c", PROGRAM],
        tmp_path / "out",
        type="uni",
        directory=str(tmp_path),
        placement={"n1": [0, 1]},
        record_load_s=0.01,
    )
    world.start(server)
    wait_until((tmp_path / "working").exists)
    node.kill()
    count = len(rows(path))
    wait_until(lambda: len(rows(path)) > count + 50)
    (tmp_path / "go").touch()
    node.start()
    assert [end.code for end in world.ends(server)] == [0, 0]
    found = rows(path)
    assert {(row["run"], row["resize"]) for row in found} == {("1", "0")}
    assert "2" in {row["processes"] for row in found}
    assert found[-1]["processes"] == found[-1]["resident_bytes"] == "0"
    for name in ("time", "demand_bytes", *COLUMNS[6:]):
        values = [float(row[name]) for row in found]
        assert values == sorted(values), name
    last = found[-1]
    assert float(last["user_s"]) + float(last["system_s"]) >= 0.5
    assert int(last["wchar"]) >= 10_000_000
    assert int(last["demand_bytes"]) > 1 << 20
    assert signal.SIGKILL not in {end.signal for end in world.ends(server)}
    assert path.stat().st_mode & 0o777 == 0o666 & ~0o027

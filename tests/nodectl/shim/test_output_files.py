"""Output files of a job: emptied once, before any rank writes."""

from __future__ import annotations

import fcntl
import math
import os
import sys
import time
from pathlib import Path

import pytest

from nodekit import FakeServer, World

pytestmark = pytest.mark.cluster

#: Ranks that write at once, so that one that is late to empty the file would be noticed.
WRITE = ["sh", "-c", "echo out; echo err >&2"]
RANKS = 6


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("stderr", ["err", ""])
def test_the_files_of_a_new_job_are_emptied(
    server: FakeServer, tmp_path: Path, stderr: str
) -> None:
    out, err = tmp_path / "out", tmp_path / stderr if stderr else None
    for path in (out, err):
        if path:
            path.write_text("of an earlier job\n" * 100)
    world = World(
        WRITE,
        out,
        stderr=str(err or ""),
        placement={"n1": list(range(RANKS))},
        truncate_before=math.inf,
    )
    world.start(server)
    world.ends(server)
    lines = out.read_text().splitlines() + (err.read_text().splitlines() if err else [])
    assert sorted(lines) == ["err"] * RANKS + ["out"] * RANKS


@pytest.mark.usefixtures("node")
def test_each_rank_has_files_of_its_own(server: FakeServer, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"100%-{number}").write_text("of an earlier job\n")
    world = World(
        WRITE,
        tmp_path / "100%%-%t",
        stderr=str(tmp_path / "err-%t-%q"),
        placement={"n1": [0, 1]},
        truncate_before=math.inf,
        first_rank=2,
    )
    world.start(server)
    world.ends(server)
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    earlier = {f"100%-{number}": "of an earlier job\n" for number in (0, 1, 4)}
    mine = {"100%-2": "out\n", "100%-3": "out\n", "err-2-%q": "err\n", "err-3-%q": "err\n"}
    assert {name: files[name] for name in earlier | mine} == earlier | mine


@pytest.mark.usefixtures("node")
def test_what_another_node_has_written_is_kept(server: FakeServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("another rank\n")
    world = World(["echo", "this rank"], out, truncate_before=os.stat(out).st_mtime)
    world.start(server)
    world.ends(server)
    assert out.read_text() == "another rank\nthis rank\n"
    again = World(["echo", "alone"], out, truncate_before=time.time() + 1)
    again.start(server)
    again.ends(server)
    assert out.read_text() == "alone\n"


@pytest.mark.usefixtures("node")
def test_only_plain_files_of_the_user_are_emptied(server: FakeServer, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("precious\n")
    link = tmp_path / "link"
    link.symlink_to(kept)
    through_link = World(["true"], link, truncate_before=math.inf)
    through_link.start(server)
    (end,) = through_link.ends(server)
    assert end.code
    assert kept.read_text() == "precious\n"
    null = World([sys.executable, "-c", "print(1)"], Path("/dev/null"), truncate_before=math.inf)
    null.start(server)
    assert [end.code for end in null.ends(server)] == [0]


@pytest.mark.usefixtures("node")
def test_a_file_that_a_program_keeps_locked_holds_up_no_start(
    server: FakeServer, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("of an earlier job\n")
    with out.open("r+") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        world = World(["echo", "this rank"], out, truncate_before=math.inf)
        world.start(server)
        world.ends(server)
    assert out.read_text() == "this rank\n"

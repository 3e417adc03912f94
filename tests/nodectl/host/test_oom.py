"""Case 47: who is killed for want of memory is told so where the kernel counts it."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.host.oom import OUT_OF_MEMORY, UNKNOWN_KILLER
from testkit import wait_until

MEBIBYTE = 1 << 20
HOG = f"block = bytearray({256 * MEBIBYTE}); print('there is room')"


@pytest.fixture
def small_group() -> Iterator[Path]:
    """Return a control group whose members may have 64 MiB."""
    folder = Path("/sys/fs/cgroup/memory") / f"pliant-test-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(64 * MEBIBYTE))
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no control group with a limit of memory: {error}")
    yield folder
    home = Path("/sys/fs/cgroup/memory/cgroup.procs")
    for pid in (folder / "cgroup.procs").read_text().split():
        home.write_text(pid)
    wait_until(lambda: not (folder / "cgroup.procs").read_text(), what="an empty group")
    folder.rmdir()


@pytest.mark.case(47)
@pytest.mark.cluster
def test_a_job_that_the_kernel_killed_for_memory_has_this_reason(
    small_group: Path, server: FakeServer, node: Node, tmp_path: Path
) -> None:
    assert node.process is not None
    controller = psutil.Process(node.process.pid)
    launcher = wait_until(controller.children, what="the launcher")[0]
    (small_group / "cgroup.procs").write_text(str(launcher.pid))
    hog = World([sys.executable, "-c", HOG], tmp_path / "out", type="uni")
    hog.start(server)
    (end,) = hog.ends(server)
    assert (end.signal, end.reason) == (9, OUT_OF_MEMORY)
    assert (tmp_path / "out").read_text() == ""
    assert node.process.poll() is None


def test_a_kill_that_nobody_counted_names_all_who_may_have_sent_it() -> None:
    # A script that runs `kill -9 $$` was told that it was killed from outside.
    assert "by itself or by another process, or by the system" in UNKNOWN_KILLER

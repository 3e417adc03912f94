"""Case 43: a job that starts processes without end is ended; its node serves the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodekit import FakeServer, Node, World
from pliant.nodectl.controller.usage import over_process_limit
from pliant.nodectl.host import procfs
from pliant.protos import node_pb2 as wire
from testkit import wait_until

MOST, DEPTH = 60, 6
#: Each process starts two that nobody waits for and that ignore TERM, and again, to a depth; all
#: go on starting others while the gate is there. 127 at a time, and as many that live for a moment.
BOMB = """
trap '' TERM
grow() {
    if [ $1 -gt 0 ]; then (grow $(($1 - 1)) &) ; (grow $(($1 - 1)) &) ; fi
    while [ -e "$GATE" ]; do sleep 0.2; done
}
grow $DEPTH
"""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """Return what keeps a bomb alive; whatever a test finds, it does not outlive it."""
    path = tmp_path / "gate"
    path.touch()
    yield path
    path.unlink()


def processes(world: str) -> list[int]:
    mark = os.fsencode(f"PLIANT_WORLD={world}")
    return [pid for pid in procfs.processes() if mark in procfs.environment(pid)]


@pytest.mark.case(43)
@pytest.mark.cluster
@pytest.mark.parametrize("node", [("--most-processes", str(MOST))], indirect=True)
def test_a_bomb_is_ended_with_all_that_came_of_it(
    server: FakeServer, node: Node, gate: Path, tmp_path: Path
) -> None:
    variables = {"GATE": str(gate), "DEPTH": str(DEPTH)}
    bomb = World(
        ["/bin/sh", "-c", BOMB], tmp_path / "bomb", type="uni", grace_s=0.2, environment=variables
    )
    other = World(["/bin/sleep", "600"], tmp_path / "other", type="uni", job=2)
    name, quiet = bomb.start(server), other.start(server)
    (end,) = bomb.ends(server)
    assert end.reason.startswith("it had ")
    assert end.reason.endswith(f" processes, and may have {MOST} on a node")
    assert processes(name) == []
    assert gate.exists()
    beats = len(server.beats)
    canary = World(["/bin/true"], tmp_path / "canary", type="uni", job=3)
    canary.start(server)
    assert [each.code for each in canary.ends(server)] == [0]
    wait_until(lambda: len(server.beats) > beats, what="a beat")
    assert len(processes(quiet)) == 1
    assert (quiet, 0) not in server.exits
    assert node.process is not None
    assert node.process.poll() is None


def test_who_keeps_to_the_limit_is_let_alone() -> None:
    used = [wire.JobUsage(job=1, processes=8), wire.JobUsage(job=2, processes=9)]
    assert [job for job, _ in over_process_limit(used, 8)] == [2]


@pytest.mark.case(43)
def test_without_a_limit_a_job_may_have_half_of_what_the_kernel_gives() -> None:
    ids = int(Path("/proc/sys/kernel/pid_max").read_text())
    used = [wire.JobUsage(job=1, processes=ids // 2), wire.JobUsage(job=2, processes=ids // 2 + 1)]
    assert [job for job, _ in over_process_limit(used, 0)] == [2]

"""Ranks that may only run in contact with the server: their shim ends them by itself."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from nodekit import FakeServer, Node, World
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

#: Long enough for a machine that has other things to do.
LEASE_S, STOP_S = 2.5, 0.5


def world(tmp_path: Path, stop_after_s: float | None = STOP_S) -> World:
    """Return one rank that writes its process id and sleeps."""
    script = f"echo $$ > '{tmp_path}/pid.new'; mv '{tmp_path}/pid.new' '{tmp_path}/pid'; sleep 600"
    return World(
        ["/bin/sh", "-c", script],
        tmp_path / "out",
        type="uni",
        lease_s=LEASE_S,
        stop_after_s=stop_after_s,
    )


def started(tmp_path: Path) -> psutil.Process:
    wait_until((tmp_path / "pid").exists, what="the rank to start")
    return psutil.Process(int((tmp_path / "pid").read_text()))


def stands(node: Node) -> int:
    assert node.process is not None
    os.kill(node.process.pid, signal.SIGSTOP)
    return node.process.pid


def outlive_a_lease(server: FakeServer) -> None:
    """Wait until many beats were heard, over more than a lease."""
    begin, heard = time.monotonic(), len(server.beats)
    wait_until(
        lambda: (
            time.monotonic() > begin + 1.5 * (LEASE_S + STOP_S) and len(server.beats) > heard + 5
        )
    )


@pytest.mark.usefixtures("node")
def test_who_is_in_contact_goes_on_and_ends_when_beats_are_not_confirmed_any_more(
    server: FakeServer, tmp_path: Path
) -> None:
    mine = world(tmp_path)
    mine.start(server)
    rank = started(tmp_path)
    outlive_a_lease(server)
    assert rank.is_running()
    assert any(beat.confirm for _, beat in server.beats)
    server.confirm = False  # its words arrive, and what the server sends arrives, too
    before = time.monotonic()
    (end,) = mine.ends(server)
    assert time.monotonic() - before > LEASE_S
    assert end.cut_off
    assert end.signal == signal.SIGTERM
    assert end.reason.startswith("cut off from the server for ")
    assert end.reason.endswith("s (stop-after=0.5)")


def test_a_shim_ends_its_ranks_although_the_controller_is_frozen(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    mine = world(tmp_path)
    mine.start(server)
    rank = started(tmp_path)
    pid = stands(node)
    try:
        wait_until(lambda: not rank.is_running(), what="the end of the rank")
        assert (mine.name, 0) not in server.exits
    finally:
        os.kill(pid, signal.SIGCONT)
    (end,) = mine.ends(server)
    assert end.cut_off


def test_a_new_controller_without_a_server_renews_nothing(
    server: FakeServer, node: Node, tmp_path: Path
) -> None:
    mine = world(tmp_path)
    mine.start(server)
    rank = started(tmp_path)
    node.kill()
    server.stop()
    node.start(wait=False)
    wait_until(lambda: not rank.is_running(), what="the end of the rank")
    server.start()
    (end,) = mine.ends(server)
    assert end.cut_off


@pytest.mark.usefixtures("node")
def test_a_world_without_stop_after_needs_no_contact(server: FakeServer, tmp_path: Path) -> None:
    mine = world(tmp_path, stop_after_s=None)
    mine.start(server)
    rank = started(tmp_path)
    server.confirm = False
    outlive_a_lease(server)
    assert rank.is_running()
    assert not any(beat.confirm for _, beat in server.beats)


@pytest.mark.usefixtures("node")
def test_an_order_that_was_long_under_way_is_refused(server: FakeServer, tmp_path: Path) -> None:
    server.confirm = False
    outlive_a_lease(server)
    mine = world(tmp_path)
    mine.start(server)
    (end,) = mine.ends(server)
    assert (end.code, end.cut_off) == (126, True)
    assert "n1: cut off from the server" in end.reason
    assert not (tmp_path / "pid").exists()

"""A node that cannot fork, has no room on its disk, or has processes that do not end."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pliant.nodectl.controller import controller as controller_module
from pliant.nodectl.controller import spool_recovery
from pliant.nodectl.controller.controller import Controller
from pliant.nodectl.controller.launcher_client import LauncherCallbacks
from pliant.nodectl.controller.server_connection.server_links import SecretLink, server_finder
from pliant.nodectl.controller.spool_recovery import SHIM_KILLED, kill_orphans
from pliant.nodectl.controller.world_state import LocalWorld, add_missing_exits
from pliant.nodectl.host import procfs
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.launcher import Launcher
from pliant.nodectl.settings import ControllerSettings
from pliant.nodectl.shim import rank_exits, rank_termination
from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.shim.rank_exits import ExitCallbacks, ExitTracker
from pliant.nodectl.shim.ranks import Rank, start_ranks
from pliant.nodectl.world_folder import SpooledExit, StartRequest, WorldFolder
from pliant.protos import node_pb2 as wire


def fail(number: int) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture
def spool(tmp_path: Path) -> WorldFolder:
    (tmp_path / "spool").mkdir()
    request = StartRequest(
        world="w1",
        job=1,
        run=1,
        resize=0,
        type="uni",
        size=2,
        ranks=[(0, 10), (1, 11)],
        argv=["true"],
        environment={},
        directory="/",
        stdout="",
        boot=procfs.boot_id(),
    )
    return WorldFolder.create(tmp_path / "spool", request, b"token", b"n1:2\n")


@pytest.fixture
def world(spool: WorldFolder) -> LocalWorld:
    return LocalWorld(spool.request(), spool)


class FakeLauncher:
    """Takes the orders of a controller and forks nothing; the test calls what it reports."""

    def __init__(self, log: Path, descriptors: int, calls: LauncherCallbacks) -> None:
        self.calls = calls
        self.started: list[str] = []

    async def run(self) -> None:
        self.calls.on_new()
        await asyncio.Event().wait()

    def start_world(self, directory: str) -> None:
        self.started.append(directory)


class RunningController:
    """A controller without a server, that has found one world without a shim in its spool."""

    def __init__(self, folder: Path, world: LocalWorld, patch: pytest.MonkeyPatch) -> None:
        self.launchers: list[FakeLauncher] = []
        patch.setattr(controller_module, "LauncherClient", self._make_launcher)
        self._controller = Controller(
            ControllerSettings(name="n1"),
            folder,
            SecretLink(server_finder("", folder / "address"), folder / "node.secret"),
            1024,
        )
        self._directory = str(world.spool.directory)
        self.worlds: list[wire.LiveWorld] = []

    def _make_launcher(self, *arguments: Any) -> FakeLauncher:
        self.launchers.append(FakeLauncher(*arguments))
        return self.launchers[-1]

    async def during(self, happens: Callable[[LauncherCallbacks, str], None]) -> None:
        """Run the controller, have something happen when it has ordered a shim, and end it."""
        (launcher,) = self.launchers
        running = asyncio.create_task(self._controller.run())
        async with asyncio.timeout(60):
            while not launcher.started:
                await asyncio.sleep(0.01)
        happens(launcher.calls, self._directory)
        await asyncio.sleep(0.1)  # for what it may do about it
        self.worlds = list(self._controller.registration().worlds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def controller(
    tmp_path: Path, world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> RunningController:
    return RunningController(tmp_path, world, monkeypatch)


class Tracked:
    """The exits of two ranks that have no processes, followed in an event loop of their own."""

    def __init__(self, spool: WorldFolder) -> None:
        self.loop = EventLoop()
        calls = ExitCallbacks(
            lambda: None, lambda _: None, self.loop.stop, lambda _: None, lambda _: False
        )
        self.tracker = ExitTracker(self.loop, spool, spool.request(), calls)
        self.ranks = {number: Rank(number, 10 + number, 0) for number in (0, 1)}
        self.tracker.watch(self.ranks)

    def end(self, *ranks: int, status: int = 0) -> None:
        """Have ranks ended, with a status of waitpid."""
        for number in ranks:
            self.ranks[number].status = status
            self.tracker.add_ended(self.ranks[number])
        self.tracker.update()

    def close(self) -> None:
        self.tracker.close()
        self.loop.close()


@pytest.fixture
def tracked(spool: WorldFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracked]:
    monkeypatch.setattr(rank_termination, "leftovers", lambda *_: [])
    monkeypatch.setattr(rank_exits, "SAVE_RETRY_S", 0.01)
    made = Tracked(spool)
    yield made
    made.close()


def me() -> ProcessIdentity:
    found = ProcessIdentity.of(os.getpid())
    assert found is not None
    return found


# ------------------------------------------------------------------ the controller


def test_a_shim_that_gives_way_does_not_end_the_world_of_another(
    controller: RunningController, world: LocalWorld
) -> None:
    def second_shim_ends(calls: LauncherCallbacks, directory: str) -> None:
        assert world.spool.claim(me())
        calls.on_gone(directory)

    asyncio.run(controller.during(second_shim_ends))
    assert [each.world for each in controller.worlds] == [world.name]
    assert world.spool.exits() == {}


def test_a_world_without_a_shim_ends_with_the_reason(
    controller: RunningController, world: LocalWorld
) -> None:
    def fork_fails(calls: LauncherCallbacks, directory: str) -> None:
        calls.on_failed(directory, "cannot fork: no more")

    asyncio.run(controller.during(fork_fails))
    assert [(e.code, e.reason, e.node_fault) for e in world.spool.exits().values()] == [
        (126, "cannot start jobs: cannot fork: no more", True)
    ] * 2


@pytest.mark.case(45)
def test_processes_that_cannot_be_killed_are_given_up(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spool_recovery, "find_orphans", lambda *_: [os.getpid()])
    monkeypatch.setattr(os, "kill", fail(errno.EPERM))
    turns = 0

    async def others_have_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scene() -> list[int]:
        other = asyncio.create_task(others_have_turns())
        left = await kill_orphans(world.spool, world.shim, 0.1)
        other.cancel()
        return left

    assert asyncio.run(scene()) == [os.getpid()]
    assert turns > 1
    assert "do not end: given up" in caplog.text


def test_orphans_that_end_slowly_are_killed_again_and_waited_for(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, killed = itertools.count(1), list[tuple[int, int]]()
    # Nobody has this number: it is never handed out.
    found, number = [1 << 30], 1 << 30
    monkeypatch.setattr(spool_recovery, "_is_running", lambda _: True)
    monkeypatch.setattr(
        spool_recovery, "find_orphans", lambda *_: found if next(looks) <= 3 else []
    )
    monkeypatch.setattr(os, "kill", lambda *told: killed.append(told))
    assert asyncio.run(kill_orphans(world.spool, world.shim)) == []
    assert killed == [(number, signal.SIGKILL)] * 3
    assert next(looks) == 5


def test_a_world_that_is_cleaned_up_accepts_no_other_shim(world: LocalWorld) -> None:
    assert world.accepts_shim(7)
    world.cleaning_up = True
    assert not world.accepts_shim(7), "what it has started may be overlooked"
    world.shim = me()
    assert [world.accepts_shim(pid) for pid in (me().pid, 7)] == [True, False]


def test_exits_are_reported_although_they_cannot_be_saved(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorldFolder, "save_exits", fail(errno.ENOSPC))
    assert [each.rank for each in add_missing_exits(world, SHIM_KILLED)] == [0, 1]
    assert world.all_ended


# ------------------------------------------------------------------ the launcher


@pytest.mark.case(47)
def test_a_launcher_that_cannot_fork_says_so_and_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    descriptors: list[int] = []

    def fork() -> None:
        descriptors.append(len(os.listdir("/proc/self/fd")))
        fail(errno.EAGAIN)()

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(EventLoop, "on_signals", lambda *_: None)
    ours, theirs = socket.socketpair()
    ours.sendall(b'{"start": "/spool/w1"}\n{"start": "/spool/w2"}\n{"start": "/spool/w3"}\n')
    ours.shutdown(socket.SHUT_WR)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    Launcher(theirs).run()
    answers = [json.loads(line) for line in ours.recv(4096).splitlines()]
    assert [answer["failed"] for answer in answers] == ["/spool/w1", "/spool/w2", "/spool/w3"]
    assert {answer["reason"] for answer in answers} == {
        "cannot fork: Resource temporarily unavailable; "
        "end some processes, or allow more (ulimit -u)"
    }
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert len(descriptors) == 3
    assert len(set(descriptors)) == 1, "each attempt leaves descriptors open"
    ours.close()


# ------------------------------------------------------------------ the shim


@pytest.mark.case(47)
def test_ranks_that_cannot_be_forked_have_ended(
    spool: WorldFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fork", fail(errno.ENOMEM))
    loop = EventLoop()
    ranks = start_ranks(loop, spool, spool.request(), 0, (fail(0), fail(0)))
    loop.selector.close()
    assert [rank.live for rank in ranks.values()] == [False, False]
    assert ranks[1].end_reason == "cannot start: fork: Cannot allocate memory"


@pytest.mark.case(17)
def test_a_shim_keeps_exits_until_the_disk_has_room(
    tracked: Tracked, spool: WorldFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = os.write, itertools.count()

    def full(handle: int, data: bytes) -> int:
        """Take a few bytes, then none, for a while."""
        call = next(calls)
        if call < 6 and call % 2:
            fail(errno.ENOSPC)()
        return write(handle, data[:10] if call < 6 else data)

    monkeypatch.setattr(os, "write", full)
    tracked.end(0)
    assert spool.exits() == {}
    tracked.end(1, status=256)
    tracked.loop.run()
    assert {rank: e.code for rank, e in spool.exits().items()} == {0: 0, 1: 1}


def test_a_shim_continues_although_it_cannot_even_log(
    tracked: Tracked, spool: WorldFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, left = os.write, itertools.count(-4)
    said: list[int] = []

    def full(handle: int, data: bytes) -> int:
        if next(left) < 0:
            said.append(handle)
            fail(errno.ENOSPC)()
        return write(handle, data)

    monkeypatch.setattr(os, "write", full)
    tracked.end(0, 1, status=256)
    tracked.loop.run()
    assert 2 in said
    assert {rank: e.code for rank, e in spool.exits().items()} == {0: 1, 1: 1}


def test_a_shim_whose_world_was_removed_ends_without_saving_exits(
    tracked: Tracked, spool: WorldFolder
) -> None:
    spool.remove()
    tracked.end(0, 1)
    tracked.loop.run()


# ------------------------------------------------------------------ the spool


def test_exits_after_a_truncated_line_are_read(spool: WorldFolder) -> None:
    with open(spool.directory / "exits", "w") as file:
        file.write('{"rank": 1, "proc')
    spool.save_exits([SpooledExit(0, 10, 1, 0, "", 1.5)])
    assert list(spool.exits()) == [0]


def test_a_start_that_finds_no_room_leaves_no_files(
    tmp_path: Path, spool: WorldFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = spool.request()
    request.world = "w2"
    with monkeypatch.context() as full:
        full.setattr(os, "write", fail(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            WorldFolder.create(tmp_path / "spool", request, b"", b"")
    assert WorldFolder.create(tmp_path / "spool", request, b"", b"").request() == request

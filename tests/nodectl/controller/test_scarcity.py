"""No process to fork, no room on the disk, nobody to end: said, survived, and not for ever."""

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

import pytest

from pliant.nodectl.controller import world_adoption
from pliant.nodectl.controller.controller import Controller
from pliant.nodectl.controller.local_world import LocalWorld, add_missing_exits
from pliant.nodectl.controller.world_adoption import SHIM_KILLED, kill_orphans
from pliant.nodectl.host.oom import MemoryKills
from pliant.nodectl.host.procfs import Identity
from pliant.nodectl.launcher import Launcher
from pliant.nodectl.settings import ControllerSettings
from pliant.nodectl.shim import exits
from pliant.nodectl.shim import ranks as rank_processes
from pliant.nodectl.shim.event_loop import EventLoop, open_directory
from pliant.nodectl.shim.exits import ExitCallbacks, ExitTracker
from pliant.nodectl.shim.ranks import Rank, start_ranks
from pliant.nodectl.shim.shim import Shim
from pliant.nodectl.spool import Spool, SpooledExit, StartRequest


def fail(number: int) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
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
    )
    return Spool.create(tmp_path / "spool", request, b"token", b"n1:2\n")


@pytest.fixture
def world(spool: Spool) -> LocalWorld:
    return LocalWorld(spool.request(), spool)


@pytest.fixture
def controller(tmp_path: Path, world: LocalWorld) -> Controller:
    made = Controller(ControllerSettings(name="n1"), tmp_path, tmp_path / "address", 1024)
    made._worlds[world.name] = world
    return made


class Tracked:
    """The exits of two ranks that have no processes, followed in an event loop of their own."""

    def __init__(self, spool: Spool) -> None:
        self.loop = EventLoop()
        calls = ExitCallbacks(lambda: None, lambda _: None, self.loop.stop)
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
def tracked(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracked]:
    monkeypatch.setattr(rank_processes, "leftovers", lambda *_: [])
    monkeypatch.setattr(exits, "SAVE_RETRY_S", 0.01)
    made = Tracked(spool)
    yield made
    made.close()


@pytest.fixture
def keeper(spool: Spool, tmp_path: Path) -> Iterator[Shim]:
    node = open_directory(tmp_path)
    made = Shim(spool, spool.request(), node)
    made._ranks = {number: Rank(number, 10 + number, 0) for number in (0, 1)}
    yield made
    made._close()
    os.close(node)


def me() -> Identity:
    found = Identity.of(os.getpid())
    assert found is not None
    return found


# ------------------------------------------------------------------ the controller


def test_a_shim_that_gives_way_does_not_bury_the_world_of_another(
    controller: Controller, world: LocalWorld
) -> None:
    assert world.spool.claim(me())

    async def second_one_is_gone() -> None:
        controller._on_gone(str(world.spool.directory))
        assert world.shim_watch is not None
        world.shim_watch.cancel()

    asyncio.run(second_one_is_gone())
    assert (world.shim, world.cleaning_up, world.exits) == (me(), False, {})


def test_a_world_without_a_shim_ends_with_the_reason(
    controller: Controller, world: LocalWorld
) -> None:
    controller._on_failed(str(world.spool.directory), "cannot fork: no more")
    assert [(e.code, e.reason, e.node_fault) for e in world.exits.values()] == [
        (126, "cannot start jobs: cannot fork: no more", True)
    ] * 2
    assert {e.node_fault for e in world.spool.exits().values()} == {True}
    assert world.ended


@pytest.mark.case(45)
def test_what_nobody_can_end_is_given_up(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(world_adoption, "find_orphans", lambda *_: [os.getpid()])
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


def test_what_goes_slowly_is_killed_again_and_waited_for(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, killed = itertools.count(1), list[tuple[int, int]]()
    # Nobody has this number: it is never handed out.
    found, number = [1 << 30], 1 << 30
    monkeypatch.setattr(world_adoption, "_is_running", lambda _: True)
    monkeypatch.setattr(
        world_adoption, "find_orphans", lambda *_: found if next(looks) <= 3 else []
    )
    monkeypatch.setattr(os, "kill", lambda *told: killed.append(told))
    assert asyncio.run(kill_orphans(world.spool, world.shim)) == []
    assert killed == [(number, signal.SIGKILL)] * 3
    assert next(looks) == 5


def test_a_world_that_is_being_buried_takes_no_shim(world: LocalWorld) -> None:
    assert world.accepts_shim(7)
    world.cleaning_up = True
    assert not world.accepts_shim(7), "what it has started may be overlooked"
    world.shim = me()
    assert [world.accepts_shim(pid) for pid in (me().pid, 7)] == [True, False]


def test_ends_are_reported_when_they_cannot_be_noted(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spool, "save_exits", fail(errno.ENOSPC))
    assert [each.rank for each in add_missing_exits(world, SHIM_KILLED)] == [0, 1]
    assert world.all_ended


# ------------------------------------------------------------------ the launcher


@pytest.mark.case(47)
def test_a_launcher_that_cannot_fork_says_so_and_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", fail(errno.EAGAIN))
    ours, theirs = socket.socketpair()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    descriptors = len(os.listdir("/proc/self/fd"))
    launcher = Launcher(theirs)
    launcher._on_line(b'{"start": "/spool/w1"}')
    answer = json.loads(ours.recv(4096))
    assert answer == {
        "failed": "/spool/w1",
        "reason": "cannot fork: Resource temporarily unavailable; "
        "end some processes, or allow more (ulimit -u)",
    }
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    launcher._controller.close()
    launcher._loop.selector.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1
    ours.close()


# ------------------------------------------------------------------ the shim


@pytest.mark.case(47)
def test_ranks_that_cannot_be_forked_have_ended(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fork", fail(errno.ENOMEM))
    loop = EventLoop()
    ranks = start_ranks(loop, spool, spool.request(), 0, (fail(0), fail(0)))
    loop.selector.close()
    assert [rank.live for rank in ranks.values()] == [False, False]
    assert ranks[1].end_reason == "cannot start: fork: Cannot allocate memory"


@pytest.mark.case(17)
def test_a_shim_keeps_ends_until_the_disk_has_room(
    tracked: Tracked, spool: Spool, monkeypatch: pytest.MonkeyPatch
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


def test_a_shim_lives_on_where_not_even_its_complaint_finds_room(
    tracked: Tracked, spool: Spool, monkeypatch: pytest.MonkeyPatch
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


def test_a_shim_whose_world_is_forgotten_need_not_note_its_ends(
    tracked: Tracked, spool: Spool
) -> None:
    spool.remove()
    tracked.end(0, 1)
    tracked.loop.run()


def test_the_code_of_an_abort_is_that_of_all_who_end_for_it(
    keeper: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_processes, "ask_to_end", lambda _: None)
    keeper._abort(1, 1, "abort")
    for rank in keeper._ranks.values():
        rank.status = signal.SIGTERM
        rank.close()
    found = [rank_processes.exit_of(rank, {}, MemoryKills()) for rank in keeper._ranks.values()]
    assert [(e.code, e.signal, e.reason) for e in found] == [
        (1, 0, "rank 1 aborted with code 1")
    ] * 2


# ------------------------------------------------------------------ the spool


def test_what_follows_a_line_that_a_crash_has_cut_is_read(spool: Spool) -> None:
    with open(spool.directory / "exits", "w") as file:
        file.write('{"rank": 1, "proc')
    spool.save_exits([SpooledExit(0, 10, 1, 0, "", 1.5)])
    assert list(spool.exits()) == [0]


def test_an_order_that_finds_no_room_leaves_nothing(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = spool.request()
    request.world = "w2"
    with monkeypatch.context() as full:
        full.setattr(os, "write", fail(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            Spool.create(tmp_path / "spool", request, b"", b"")
    assert Spool.create(tmp_path / "spool", request, b"", b"").request() == request

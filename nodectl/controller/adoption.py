"""Worlds that an earlier controller has left: read from the spool, ended when nobody keeps them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from pliant.nodectl.controller.copied_state import own_spools
from pliant.nodectl.controller.world import World, note_missing
from pliant.nodectl.host import cgroup, procfs, shared_memory
from pliant.nodectl.host.procfs import Identity
from pliant.nodectl.spool import UNREADABLE, Exit, Spool

logger = logging.getLogger("pliant.nodectl")

#: How long what a killed shim has left behind may take to end, and how often that is looked at.
ORPHANS_S, _ORPHANS_EVERY_S = 10.0, 0.02

SHIM_KILLED = "its shim was killed"
SHIM_UNTRACED = "the record of its shim was lost"
REBOOTED = "the node was restarted"
TAKEN_DOWN = "its node was taken down"


async def load_worlds(folder: Path, boot: str) -> list[World]:
    """Read the worlds of a node; one that cannot be read is ended with all of its run here.

    A node tells the server which worlds it has, not which processors they had: a part of a run that
    is lost is missed when the node knows nothing of that run.
    """
    worlds, lost = list[World](), set[str]()
    for spool in own_spools(folder):
        try:
            worlds.append(load_world(spool, boot))
        except UNREADABLE as error:
            logger.error("%s is unreadable and removed: %s", spool.directory, error)
            await discard(spool)
            lost.add(_run_of(spool.directory.name))
    for world in [world for world in worlds if _run_of(world.name) in lost]:
        logger.error("%s is ended: another part of its run here was unreadable", world.name)
        await discard(world.spool)
        worlds.remove(world)
    return worlds


def _run_of(world: str) -> str:
    """Return what the names of all worlds of a run of a job have in common."""
    run, dot, _ = world.rpartition(".")
    return run if dot else world


def load_world(spool: Spool, boot: str) -> World:
    """Read a world from the spool; one of an earlier boot has ended.

    One whose ends are all known, too: its shim may live on with another world.
    """
    world = World(spool.request(), spool, spool.shim(), exits=spool.exits())
    if world.request.boot != boot:
        note_missing(world, REBOOTED)
    world.ended = world.complete
    if not world.ended and world.shim is None and (spool.begun() or orphans_of(spool, None)):
        world.shim = spool.shim()  # it may have become that just now
        world.untraced = world.shim is None
    return world


def orphans_of(spool: Spool, shim: Identity | None) -> list[int]:
    """Return the processes of a world whose shim is gone, by what they inherited.

    All that is left in a shim's group is of its last world.
    """
    mark = f"PLIANT_TOKEN_FILE={spool.token}".encode("utf-8", "surrogateescape")
    recorded = {who.pid for who in spool.ranks().values() if who.alive()}
    marked = {
        pid for pid in procfs.processes() if mark in procfs.environment(pid) and pid != os.getpid()
    }
    born = cgroup.members(shim) if shim is not None else set()
    return sorted(recorded | marked | born)


async def end_orphans(
    spool: Spool, shim: Identity | None, patience_s: float = ORPHANS_S
) -> list[int]:
    """Kill what is left of a world whose shim is gone, and wait until it is gone, too.

    Returns:
        What does not go: somebody else's, or stuck in the kernel.
    """
    deadline = time.monotonic() + patience_s
    if shim is not None:
        cgroup.kill(shim)
    while pids := [pid for pid in orphans_of(spool, shim) if _runs(pid)]:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has just ended
            except PermissionError:
                pass  # not ours to end: it is waited for, and named in the end
        if time.monotonic() >= deadline:
            named = ", ".join(map(str, pids))
            logger.error("%s: processes %s do not end: given up", spool.directory.name, named)
            return pids
        await asyncio.sleep(_ORPHANS_EVERY_S)
    if shim is not None:
        cgroup.remove(shim)
    return []


async def bury(world: World) -> list[Exit]:
    """End what the shim of a world has left behind, and return the ends that are new by that."""
    if world.untraced:
        logger.error("there is no record of the shim of %s; ending what is left of it", world.name)
    else:
        logger.error("the shim of %s was killed; ending what is left of it", world.name)
    await _clear_away(world)
    new = note_missing(world, SHIM_UNTRACED if world.untraced else SHIM_KILLED)
    world.spool.remove_secrets()
    return new


async def end_all(folder: Path) -> list[int]:
    """End all worlds in the spool of a node that has no controller, and note how they ended.

    Returns:
        The processes that do not go.
    """
    left = []
    for world in await load_worlds(folder, procfs.boot_id()):
        if not world.ended:  # the shim of one that has may be another's by now
            if world.shim is not None:
                _kill(world.shim)
            left += await _clear_away(world)
            note_missing(world, TAKEN_DOWN)
        world.spool.remove_secrets()
    return left


async def discard(spool: Spool) -> None:
    """End what there is of a world that cannot be read, its shim first, and forget it."""
    shim = spool.shim()
    if shim is not None:
        _kill(shim)
    await end_orphans(spool, shim)
    spool.remove()


async def _clear_away(world: World) -> list[int]:
    """End what is left of a world whose shim is gone, and free the memory that it shared.

    Returns:
        What does not go.
    """
    left = await end_orphans(world.spool, world.shim)
    request = world.request
    if request.is_mpi:
        rank = request.ranks[0][0]
        shared_memory.unlink(shared_memory.named(request.world, request.mapping, rank))
    return left


def _kill(shim: Identity) -> None:
    if shim.alive():
        with suppress(ProcessLookupError):
            os.kill(shim.pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is not None and stat.state not in procfs.DEAD

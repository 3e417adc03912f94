"""Read the worlds of an earlier controller from the spool, and end those without a shim.

A world is one ``MPI_COMM_WORLD`` of a job. The shim, which started its ranks here, may outlive the
controller: shims that still run connect to the new controller, which then continues their worlds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pliant.nodectl.controller.copied_state_folder_check import own_world_folders
from pliant.nodectl.controller.users.helper_client import (
    HelperClient,
    HelperRefusedError,
    HelperUnavailableError,
)
from pliant.nodectl.controller.world_state import LocalWorld, add_missing_exits
from pliant.nodectl.host import cgroup, memory_limit, procfs, shared_memory
from pliant.nodectl.host.oom import reason_of_group
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.world_folder import UNREADABLE, SpooledExit, WorldFolder

logger = logging.getLogger("pliant.nodectl")

#: Seconds that the processes of a killed shim may take to end, and between two checks.
ORPHANS_TIMEOUT_S, _ORPHANS_POLL_S = 10.0, 0.02
_HELPER_POLL_S = 0.1
#: Seconds that a subreaper may take to end the processes of a world, and between two looks.
SUBREAPER_GRACE_S, _MIN_HELPER_POLL_S, _MAX_HELPER_POLL_S = 5.0, 0.005, 0.5

SHIM_KILLED = "its shim was killed"
SHIM_UNKNOWN = "the record of its shim was lost"
REBOOTED = "the node was restarted"
TAKEN_DOWN = "its node was taken down"


async def read_worlds(
    folder: Path, boot: str, helper: HelperClient | None = None
) -> list[LocalWorld]:
    """Return the worlds that an earlier controller of this node has left in the spool.

    A world is the ranks that one start or one growth of a job has started here. If the record of a
    world cannot be read, all other worlds of that job here are ended, too. The reason is that a
    node tells the server which worlds it has, but not which processors they had. So the server
    notices that ranks are missing only if the node reports no world of the job.

    Args:
        folder: the folder of the worlds.
        boot: the kernel's id of this boot.
        helper: the root helper; None in single-user mode.
    """
    worlds, lost = list[LocalWorld](), set[str]()
    for spool in own_world_folders(folder):
        try:
            worlds.append(read_world(spool, boot, helper))
        except UNREADABLE as error:
            logger.error("%s is unreadable and removed: %s", spool.directory, error)
            await discard_world(spool, helper)
            lost.add(_run_of(spool.directory.name))
    for world in [world for world in worlds if _run_of(world.name) in lost]:
        logger.error("%s is ended: another part of its run here was unreadable", world.name)
        await discard_world(world.spool, helper)
        worlds.remove(world)
    return worlds


def _run_of(world: str) -> str:
    """Return the name of a world (set of ranks) without its last part, such as ``w0``.

    The rest names one execution of a job; all its worlds share it.
    """
    run, dot, _ = world.rpartition(".")
    return run if dot else world


def read_world(spool: WorldFolder, boot: str, helper: HelperClient | None = None) -> LocalWorld:
    """Read one world (set of ranks) from the spool, find out whether it has ended, and return it.

    A world has ended if it was started in an earlier boot, or if the exits of all its ranks are
    known. In the second case its shim may still run, and serve another world.
    """
    world = LocalWorld(spool.request(), spool, spool.shim(), exits=spool.exits())
    if world.request.boot != boot:
        add_missing_exits(world, REBOOTED, shim_lost=True)
    elif world.request.by_helper and helper is not None and world.all_ended:
        world.exits = {}  # claims, which the helper confirms
    world.ended = world.all_ended
    if world.request.by_helper:
        # If the helper did not answer before the last controller ended, it may have started one.
        world.helper, world.saved = helper, set(spool.exits())
        world.shim_unknown = not world.ended and world.shim is None
        return world
    if (
        not world.ended
        and world.shim is None
        and (spool.has_started() or find_orphans(spool, None))
    ):
        world.shim = spool.shim()  # a shim may have claimed the world just now
        world.shim_unknown = world.shim is None
    return world


def find_orphans(spool: WorldFolder, shim: ProcessIdentity | None) -> list[int]:
    """Return the ids of the processes that a set of ranks has left after its shim has ended.

    They are found by the saved ranks, by their environment, and by the shim's control group. This
    group contains only processes of the ranks that the shim started last.
    """
    mark = f"PLIANT_TOKEN_FILE={spool.token}".encode("utf-8", "surrogateescape")
    recorded = {who.pid for who in spool.ranks().values() if who.alive()}
    marked = {
        pid for pid in procfs.processes() if mark in procfs.environment(pid) and pid != os.getpid()
    }
    born = cgroup.members(shim) if shim is not None else set()
    return sorted(recorded | marked | born)


async def end_by_helper(
    world: str, helper: HelperClient, timeout_s: float = ORPHANS_TIMEOUT_S
) -> list[int]:
    """Order the root helper to kill the processes of a set of ranks; wait until they have ended.

    Returns:
        An empty list if all processes have ended. Otherwise the process id of the shim, if it still
        exists, or 0 if the helper has not answered at all.
    """
    deadline, left, problem = time.monotonic() + timeout_s, [0], ""
    while True:
        try:
            if not await asyncio.to_thread(helper.end, world):
                return []
            shim = await asyncio.to_thread(helper.find, world)
            left = [shim.pid] if shim is not None else []
        except (HelperUnavailableError, HelperRefusedError) as error:
            problem = f": {error}"
        if time.monotonic() >= deadline:
            logger.error("%s: its processes do not end%s: given up", world, problem)
            return left
        await asyncio.sleep(_HELPER_POLL_S)


async def wait_for_last_process(world: LocalWorld, grace_s: float = SUBREAPER_GRACE_S) -> None:
    """Wait until the root helper reports that no process of a world (set of ranks) is left.

    The subreaper of the world ends its processes when the shim has ended. If that takes longer than
    ``grace_s`` seconds, the helper is asked to end them. There is no limit of time: while the
    helper does not answer, or a process does not end, the world keeps its processors.
    """
    assert world.helper is not None
    deadline, pause, problem = time.monotonic() + grace_s, _MIN_HELPER_POLL_S, ""
    while True:
        try:
            if await asyncio.to_thread(world.helper.find, world.name) is None:
                return
            if time.monotonic() >= deadline:
                logger.error("%s: processes are left after its end: killed", world.name)
                await asyncio.to_thread(world.helper.end, world.name)
                deadline = time.monotonic() + grace_s
        except (HelperUnavailableError, HelperRefusedError) as error:
            if str(error) != problem:
                logger.error("%s keeps its processors: %s", world.name, error)
            problem = str(error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MAX_HELPER_POLL_S)


async def kill_orphans(
    spool: WorldFolder, shim: ProcessIdentity | None, timeout_s: float = ORPHANS_TIMEOUT_S
) -> list[int]:
    """Kill the processes that ranks have left after their shim has ended; wait until they are gone.

    Returns:
        The ids of processes that did not end: another user's, or stuck in the kernel.
    """
    deadline = time.monotonic() + timeout_s
    if shim is not None:
        cgroup.kill(shim)
    while pids := [pid for pid in find_orphans(spool, shim) if _is_running(pid)]:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has just ended
            except PermissionError:
                pass  # another user's process: named in the log after the timeout
        if time.monotonic() >= deadline:
            named = ", ".join(map(str, pids))
            logger.error("%s: processes %s do not end: given up", spool.directory.name, named)
            return pids
        await asyncio.sleep(_ORPHANS_POLL_S)
    if shim is not None:
        cgroup.remove(shim)
    return []


async def clean_up(world: LocalWorld, saved: Sequence[SpooledExit] = ()) -> list[SpooledExit]:
    """End the processes that are left of a world whose shim has ended; record missing exits.

    Args:
        world: a world (set of ranks) that the root helper started, or one with missing exits.
        saved: exits that the shim has reported. They are used only if the root helper started the
            world, and if they complete the exits of its ranks. Then they are recorded when the
            last process has ended.

    Returns:
        The exits that were added to the record of the world.
    """
    if world.completes_exits(saved):
        await wait_for_last_process(world)
        world.spool.remove_secrets()
        return world.add_exits(saved)
    # A job whose shim is not known may still run somewhere, and must not run twice.
    reason, shim_lost = SHIM_UNKNOWN, False
    if world.shim_unknown:
        logger.error("there is no record of the shim of %s; ending what is left of it", world.name)
    else:
        out_of_memory = _out_of_memory_reason(world)
        reason, shim_lost = out_of_memory or SHIM_KILLED, not out_of_memory
        logger.error("the shim of %s was killed; ending what is left of it", world.name)
    if world.helper is not None:
        await wait_for_last_process(world, 0.0)
    else:
        await _remove_leftovers(world)
    new = add_missing_exits(world, reason, shim_lost=shim_lost)
    world.spool.remove_secrets()
    return new


def _out_of_memory_reason(world: LocalWorld) -> str:
    """Return the reason to report if the kernel killed a job's processes because memory ran out.

    Empty if the kernel killed none, or if the root helper started these ranks. Lack of memory can
    also explain the end of a shim, which the kernel may kill after a rank that ends slowly.
    """
    request = world.request
    if not request.memory_bytes or world.helper is not None:
        return ""
    state = world.spool.directory.parent.parent
    group = memory_limit.find_group(memory_limit.group_name(request.job, request.run, state))
    return reason_of_group(group, request.memory_bytes, request.node_name) if group else ""


async def end_all_worlds(folder: Path, helper: HelperClient | None = None) -> list[int]:
    """End all ranks that the spool of a node without a controller lists, and save their exits.

    Returns:
        The ids of processes that did not end.
    """
    left = []
    for world in await read_worlds(folder, procfs.boot_id(), helper):
        if not world.ended:  # the shim of an ended world may have another one by now
            if world.shim is not None:
                _kill(world.shim)
            left += await _remove_leftovers(world)
            add_missing_exits(world, TAKEN_DOWN)
        world.spool.remove_secrets()
    return left


async def discard_world(spool: WorldFolder, helper: HelperClient | None = None) -> None:
    """End the processes of ranks whose files cannot be read, and remove these files.

    Their shim is ended first.
    """
    if helper is not None:  # which may have started it
        await end_by_helper(spool.directory.name, helper)
    shim = spool.shim()
    if shim is not None:
        _kill(shim)
    await kill_orphans(spool, shim)
    spool.remove()


async def _remove_leftovers(world: LocalWorld) -> list[int]:
    """End the processes that are left of a world whose shim has ended; remove its shared memory.

    Returns:
        The ids of processes that did not end.
    """
    if world.request.by_helper:
        if world.helper is None:
            logger.error("%s was started by a root helper, and none is configured", world.name)
            return [world.shim.pid] if world.shim is not None else []
        return await end_by_helper(world.name, world.helper)
    left = await kill_orphans(world.spool, world.shim)
    request = world.request
    if request.is_mpi:
        rank = request.ranks[0][0]
        shared_memory.unlink(shared_memory.world_segments(request.world, request.mapping, rank))
    return left


def _kill(shim: ProcessIdentity) -> None:
    if shim.alive():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(shim.pid, signal.SIGKILL)


def _is_running(pid: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is not None and stat.state not in procfs.ENDED_STATES

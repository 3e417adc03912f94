"""Orders to end ranks, including those of jobs that stop their own shim.

A job can stop its shim (SIGSTOP), because both run as the same user. An order to end ranks wakes
the shim. If the shim is stopped again after the grace time, it is killed, and its world is cleaned
up like that of any killed shim.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Collection
from contextlib import suppress

from pliant.nodectl.controller.users.helper_client import HelperRefusedError, HelperUnavailableError
from pliant.nodectl.controller.world_state import LocalWorld
from pliant.nodectl.host import procfs
from pliant.nodectl.host.procfs import ProcessIdentity

logger = logging.getLogger("pliant.nodectl")

#: Seconds after the grace time of its ranks within which a shim should report their exits.
_REPORT_TIMEOUT_S = 5.0

#: Seconds between checks of a shim that has not reported them by then.
_POLL_S = 0.5


class KillWatcher:
    """Orders shims to end ranks, and kills a shim that is stopped and so cannot end them."""

    def __init__(self) -> None:
        #: By world, ranks and grace time, so that a repeated order is watched once.
        self._watched: dict[tuple[str, frozenset[int], float], asyncio.Task[None]] = {}

    def end_ranks(
        self, world: LocalWorld, processors: Collection[int], grace_s: float, reason: str = ""
    ) -> None:
        """Order a shim to end its ranks on ``processors``, or all its ranks if none are given.

        The ranks get SIGTERM at once, and SIGKILL after ``grace_s`` seconds.
        """
        ranks = world.request.ranks
        asked = frozenset(rank for rank, at in ranks if not processors or at in processors)
        if world.ended or asked <= world.exits.keys():
            return
        logger.info("kill %s: %s", world.name, list(processors) or "all")
        order = {"op": "kill", "processors": list(processors), "grace_s": grace_s}
        world.send(order | ({"reason": reason} if reason else {}))
        _signal(_shim_of(world), signal.SIGCONT)
        key = world.name, asked, grace_s
        if key not in self._watched:
            task = self._watched[key] = asyncio.create_task(
                _kill_stopped_shim(world, asked, grace_s)
            )
            task.add_done_callback(lambda _: self._watched.pop(key))


async def _kill_stopped_shim(world: LocalWorld, asked: frozenset[int], grace_s: float) -> None:
    await asyncio.sleep(grace_s + _REPORT_TIMEOUT_S)
    while not (world.ended or world.cleaning_up or asked <= world.exits.keys()):
        if world.helper is not None:
            # This account cannot signal the shim, and its user may have changed what it does.
            logger.error("%s: its shim does not end it: killed", world.name)
            with suppress(HelperUnavailableError, HelperRefusedError):
                await asyncio.to_thread(world.helper.end, world.name)
            await asyncio.sleep(_REPORT_TIMEOUT_S)
            continue
        who = _shim_of(world)
        if _is_stopped(who):
            logger.error("%s: its shim is stopped and cannot end it: killed", world.name)
            _signal(who, signal.SIGKILL)
            return
        await asyncio.sleep(_POLL_S)


def _shim_of(world: LocalWorld) -> ProcessIdentity | None:
    return world.shim or world.spool.shim()


def _is_stopped(who: ProcessIdentity | None) -> bool:
    stat = procfs.read_stat(who.pid) if who is not None else None
    return stat is not None and stat.state in "Tt"


def _signal(who: ProcessIdentity | None, number: int) -> None:
    if who is not None and who.alive():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(who.pid, number)

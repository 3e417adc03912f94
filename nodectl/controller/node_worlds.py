"""The worlds of a node: messages of their shims, from their adoption or start to their removal.

A world exists here until the server has acknowledged the exits of all its ranks. What the server
orders is carried out in `controller`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pliant.faults import message
from pliant.nodectl.controller.kill_orders import KillWatcher
from pliant.nodectl.controller.server_connection import confirmed_heartbeat
from pliant.nodectl.controller.shim_listener import ShimListener
from pliant.nodectl.controller.spool_recovery import clean_up, read_worlds
from pliant.nodectl.controller.start_order import CANNOT_START
from pliant.nodectl.controller.users.user_worlds import UserWorldCallbacks, make_user_worlds
from pliant.nodectl.controller.world_state import (
    LocalWorld,
    add_missing_exits,
    of_job,
    share_cpus,
    spool_folder,
    watch_process,
)
from pliant.nodectl.host import procfs
from pliant.nodectl.host.containment import SlotCpus
from pliant.nodectl.settings import ControllerSettings
from pliant.nodectl.world_folder import NOT_USABLE, SpooledExit
from pliant.protos import node_pb2 as wire
from pliant.protos.versions import ProtocolError

logger = logging.getLogger("pliant.nodectl")

SOCKET_NAME = "node.sock"

#: Seconds that the shims of an earlier controller may take to connect before this one registers.
_ADOPTION_S = 2.0

#: The same for shims without a record. They cannot be signalled, and retry at least this often.
_UNKNOWN_SHIM_S = 5.0

#: Number of ended worlds whose names are kept, so that a late order does not start one again.
_MAX_REMOVED = 10_000


class WorldCallbacks(NamedTuple):
    """Functions of the controller that `NodeWorlds` calls."""

    #: Send a report to the server.
    report: Callable[[wire.NodeReport], None]
    #: Return when the server was certainly in contact, in monotonic seconds, or None.
    contact_at: Callable[[], float | None]
    #: A world was not started because of a fault of this node.
    start_failed: Callable[[], None]


class NodeWorlds:
    """The worlds (sets of ranks) of this node, and the sockets to which their shims connect."""

    def __init__(
        self, settings: ControllerSettings, state: Path, slots: SlotCpus, callbacks: WorldCallbacks
    ) -> None:
        """Prepare to serve shims.

        Args:
            settings: the settings of the node. A reload changes none of the settings that are used
                here.
            state: the state folder of the node, which contains the spool.
            slots: the CPUs of the node.
            callbacks: functions of the controller.
        """
        self.by_name: dict[str, LocalWorld] = {}
        #: Names of worlds that have ended and were removed, oldest first.
        self.removed: OrderedDict[str, None] = OrderedDict()
        self._node, self._state, self._slots = settings.name, state, slots
        self._calls = callbacks
        self._kill_watcher = KillWatcher()
        self._tasks: set[asyncio.Task[None]] = set()
        self._shim_called = asyncio.Event()
        self._unreadable = asyncio.Event()
        self._unreadable_error: ProtocolError | None = None
        calls = UserWorldCallbacks(self._on_shim, self._watch_shim, self._not_started)
        #: Starts worlds as their users. None in single-user mode.
        self.users = make_user_worlds(settings, self.by_name, calls)
        own_shims = ShimListener(state, SOCKET_NAME, self._on_shim)
        self._listeners = [own_shims, *([self.users] if self.users else ())]

    async def open(self) -> None:
        """Read which worlds (sets of ranks) an earlier controller had; listen for their shims."""
        folder = spool_folder(self._state)
        folder.mkdir(mode=0o700, exist_ok=True)
        helper = self.users.helper if self.users else None
        worlds = await read_worlds(folder, procfs.boot_id(), helper)
        self.by_name |= {world.name: world for world in worlds}
        for listener in self._listeners:
            await listener.open()

    async def close(self) -> None:
        """Close the sockets for shims."""
        for listener in self._listeners:
            await listener.close()

    async def raise_if_unreadable(self) -> NoReturn:
        """Wait until files of a job are found that this version cannot read, then raise the error.

        Raises:
            ProtocolError: the files are of another version of Pliant. The job continues to run.
        """
        await self._unreadable.wait()
        assert self._unreadable_error is not None
        raise self._unreadable_error

    def worlds_without_shim(self) -> list[LocalWorld]:
        """Return the worlds (sets of ranks) for which the launcher must still fork a shim.

        Worlds that have ended, and those that the root helper starts, are left out.
        """
        return [
            world
            for world in self.by_name.values()
            if not (world.ended or world.shim or world.shim_unknown or world.request.by_helper)
        ]

    def kill(self, order: wire.Kill) -> None:
        """End the ranks on the processors that the order names, or all ranks if it names none."""
        for world in of_job(self.by_name.values(), order):
            self._kill_watcher.end_ranks(world, list(order.processors), order.grace_s)

    def kill_job(self, job: int, reason: str) -> None:
        """Kill all ranks of a job without a grace time.

        A set of ranks is left out while it is not known which process is its shim.
        """
        for world in list(self.by_name.values()):
            if world.request.job == job and world.shim is not None and not world.ended:
                self._kill_watcher.end_ranks(world, [], 0, reason)

    def acknowledge(self, order: wire.ExitAck) -> None:
        """Record that the server has stored the exits of the ranks that ``order`` names.

        When it has stored the exits of all ranks here that were started together, forget them.
        """
        if (world := self.by_name.get(order.world)) is not None:
            world.acknowledged |= set(order.ranks)
            self._remove_if_done(world)

    async def adopt(self) -> None:
        """Ask the running shims of an earlier controller to connect, and wait for them.

        If a shim has ended, end the processes that it left.
        """
        for world in list(self.by_name.values()):
            if self.users is not None and world.shim_unknown and world.request.by_helper:
                await self.users.find_shim(world)
            if world.ended or world.shim is None:
                continue
            if world.shim.alive():
                self._watch_shim(world)
                with suppress(PermissionError):  # another user's: it connects within seconds
                    os.kill(world.shim.pid, signal.SIGUSR1)
            else:
                self._on_shim_ended(world)
        unasked = any(w.shim_unknown or w.request.by_helper for w in self.by_name.values())
        try:
            async with asyncio.timeout(_UNKNOWN_SHIM_S if unasked else _ADOPTION_S):
                while self._silent_shims():
                    self._shim_called.clear()
                    await self._shim_called.wait()
        except TimeoutError:
            logger.warning("shims do not answer: %s", ", ".join(self._silent_shims()))
        for world in [world for world in self.by_name.values() if world.shim_unknown]:
            self._on_shim_ended(world)
        if self.by_name:
            logger.info("took over %s", ", ".join(self.by_name))

    def _silent_shims(self) -> list[str]:
        return [
            world.name
            for world in self.by_name.values()
            if not world.ended and world.channel is None and (world.shim or world.shim_unknown)
        ]

    def _on_shim(self, sent: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        try:
            self._on_shim_message(sent, writer)
        except ProtocolError as error:
            self._stop_unreadable(error)

    def _stop_unreadable(self, error: ProtocolError) -> None:
        """Stop this controller because files of a job are of another version; jobs continue."""
        self._unreadable_error = error
        self._unreadable.set()

    def _on_shim_message(self, sent: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if sent["op"] == "hello":
            self._on_hello(sent, writer)
            return
        world = next((w for w in self.by_name.values() if w.channel is writer), None)
        if world is None:
            return
        match sent["op"]:
            case "ready":
                for _ in message("controller.ready.in"):
                    world.ready = True
                    self._calls.report(world.ready_report())
            case "fence":
                self._on_barrier(world, sent)
            case "relay":
                self._calls.report(world.relay_report(sent))
            case "exits":
                for _ in message("controller.exits.in"):
                    self._report_exits(world, sent["exits"])

    def _on_hello(self, sent: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        world = self.by_name.get(sent["world"])
        if world is None or not world.accepts_shim(sent["pid"]):
            logger.warning(
                "process %d is not the shim of world %s; telling it to exit",
                sent["pid"],
                sent["world"],
            )
            line = json.dumps({"op": "kill", "processors": [], "grace_s": 0})
            writer.write(line.encode() + b"\n")
            return
        if world.shim is None:
            world.shim = procfs.ProcessIdentity.of(sent["pid"], strict=True)
            world.record_shim()
            self._watch_shim(world)
        world.channel = writer
        if sent["ready"] and not world.ready:
            world.ready = True
            self._calls.report(world.ready_report())
        if sent["fence"] is not None:
            self._on_barrier(world, sent["fence"])
        self._report_exits(world, sent["exits"])
        confirmed_heartbeat.send_contact((world,), self._calls.contact_at())
        writer.writelines(world.unsent)
        world.unsent.clear()
        share_cpus(world, self.by_name.values(), self._slots)
        self._shim_called.set()

    def _on_barrier(self, world: LocalWorld, sent: dict[str, Any]) -> None:
        if not world.request.spans_nodes:
            return  # shims complete these barriers themselves; this one is false
        world.barrier = wire.Fence(world=world.name, sequence=sent["sequence"], pairs=sent["pairs"])
        for _ in message("controller.fence.in"):
            self._calls.report(wire.NodeReport(fence=world.barrier))

    def _report_exits(self, world: LocalWorld, exits: list[dict[str, Any]]) -> None:
        ends = [SpooledExit.from_record(end) for end in exits]
        if world.completes_exits(ends):
            # It is believed when no process is left. The shim ends now, or it is killed.
            self._kill_watcher.end_ranks(world, [], 0)
        elif new := world.add_exits(ends):
            # Before the processors may be given to another job.
            share_cpus(world, self.by_name.values(), self._slots)
            self._calls.report(world.exits_report(new))
        if world.all_ended:
            self._end(world)

    def _watch_shim(self, world: LocalWorld) -> None:
        if world.shim is not None:
            world.shim_watch = watch_process(world.shim.pid, lambda: self._on_shim_ended(world))
        else:
            asyncio.get_running_loop().call_soon(self._on_shim_ended, world)

    def on_shim_gone(self, directory: str) -> None:
        """Handle the launcher's message that the shim it forked for a set of ranks has ended.

        The shim may have ended because its ranks have ended, because it was killed, or because it
        found that the ranks have another shim already.

        Args:
            directory: the spool folder of the ranks.
        """
        world = self.by_name.get(Path(directory).name)
        if world is None or world.ended:
            return
        who = world.spool.shim()
        if who is not None and who.alive() and not world.may_have_finished():
            logger.info("%s has a shim already, process %d", world.name, who.pid)
            if world.shim is None:
                world.shim = who
                self._watch_shim(world)
            return
        self._on_shim_ended(world)

    def on_shim_not_forked(self, directory: str, reason: str) -> None:
        """Report that no shim could be forked, so that the ranks it should start have failed.

        Args:
            directory: the spool folder of these ranks.
            reason: why, for the user.
        """
        world = self.by_name.get(Path(directory).name)
        if world is None or world.ended or world.spool.shim() is not None:
            return
        self._not_started(world, reason, node_fault=True)

    def _not_started(
        self, world: LocalWorld, reason: str, *, node_fault: bool = False, **more: bool
    ) -> None:
        logger.error("cannot start %s: %s", world.name, reason)
        reason = f"{CANNOT_START if node_fault else self._node}: {reason}"
        new = add_missing_exits(world, reason, NOT_USABLE, node_fault=node_fault, **more)
        world.spool.remove_secrets()
        self._calls.report(world.exits_report(new))
        if node_fault:
            self._calls.start_failed()
        self._end(world)

    def _on_shim_ended(self, world: LocalWorld) -> None:
        """Read the exits that a shim, which has ended, has saved.

        If the exit of any rank is missing, end the processes that the shim left.
        """
        if world.ended or world.cleaning_up:
            return
        world.channel = None
        try:
            saved = list(world.spool.exits().values())
        except ProtocolError as error:
            self._stop_unreadable(error)
            return
        if not world.completes_exits(saved) and (new := world.add_exits(saved)):
            self._calls.report(world.exits_report(new))
        if world.all_ended:
            self._end(world)
        else:
            world.cleaning_up = True
            task = asyncio.create_task(self._clean_up(world, saved))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _clean_up(self, world: LocalWorld, saved: list[SpooledExit]) -> None:
        new = await clean_up(world, saved)
        share_cpus(world, self.by_name.values(), self._slots)
        self._calls.report(world.exits_report(new))
        self._end(world)

    def _end(self, world: LocalWorld) -> None:
        world.end()
        self._shim_called.set()
        self._remove_if_done(world)

    def find_ended_shims(self) -> None:
        """Find shims whose end was not noticed, for example if their launcher died with them."""
        for world in list(self.by_name.values()):
            if (world.channel is None or world.shim_watch is None) and not world.ended:
                who = world.shim or world.spool.shim()
                if who is not None and not who.alive():
                    self._on_shim_ended(world)

    def _remove_if_done(self, world: LocalWorld) -> None:
        if world.is_done and self.by_name.pop(world.name, None) is not None:
            world.spool.remove()
            self.removed[world.name] = None
            if len(self.removed) > _MAX_REMOVED:
                self.removed.popitem(last=False)

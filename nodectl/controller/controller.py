"""The controller of one node: carries out orders and reports what happened.

Everything runs in one asyncio loop. An order is saved in the spool before it is carried out, so
that this process can be killed at any time.
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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.faults import failpoint, message
from pliant.nodectl.controller import confirmed_heartbeat
from pliant.nodectl.controller.kill_orders import KillWatcher
from pliant.nodectl.controller.last_server_generation import (
    ServerStart,
    read_generation,
    write_generation,
)
from pliant.nodectl.controller.launcher_client import LauncherCallbacks, LauncherClient
from pliant.nodectl.controller.local_world import (
    LocalWorld,
    add_missing_exits,
    of_job,
    send_signal,
    share_cpus,
    spool_folder,
    watch_process,
)
from pliant.nodectl.controller.registration import make_registration
from pliant.nodectl.controller.self_test import SelfTest
from pliant.nodectl.controller.server_links import ServerLink
from pliant.nodectl.controller.server_stream import (
    ControllerStream,
    StaleServerError,
)
from pliant.nodectl.controller.shim_listener import ShimListener
from pliant.nodectl.controller.start_order import (
    CANNOT_START,
    NodeShares,
    NotStartedError,
    create_world,
    refuse_start,
    repeat_start,
)
from pliant.nodectl.controller.usage import MemoryLimits, job_usage, over_process_limit
from pliant.nodectl.controller.users.user_worlds import UserWorldCallbacks, make_user_worlds
from pliant.nodectl.controller.world_adoption import clean_up, read_worlds
from pliant.nodectl.host import cgroup, procfs
from pliant.nodectl.host.containment import SlotCpus, describe, find_controllers
from pliant.nodectl.settings import ControllerSettings, reload
from pliant.nodectl.world_folder import NOT_USABLE, SpooledExit
from pliant.protos import node_pb2 as wire
from pliant.protos.versions import ProtocolError

if TYPE_CHECKING:
    # It loads the package cryptography, which a node without a certificate does not need.
    from pliant.nodectl.certified.application_server_address import ApplicationAccess

logger = logging.getLogger("pliant.nodectl")

SOCKET_NAME = "node.sock"

#: Seconds that the shims of an earlier controller may take to connect before this one registers.
_ADOPTION_S = 2.0

#: The same for shims without a record. They cannot be signalled, and retry at least this often.
_UNKNOWN_SHIM_S = 5.0

_ABLE = wire.NodeReport(able=wire.Able())

#: Number of ended worlds whose names are kept, so that a late order does not start one again.
_MAX_REMOVED = 10_000


class Controller:
    """Carries out the server's orders on one node."""

    def __init__(
        self, settings: ControllerSettings, state: Path, link: ServerLink, descriptors: int
    ) -> None:
        self._settings = settings
        self._state = state
        self._boot = procfs.boot_id()
        self._worlds: dict[str, LocalWorld] = {}
        self._removed: OrderedDict[str, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._kill_watcher = KillWatcher()
        self._shim_called = asyncio.Event()
        self._unreadable = asyncio.Event()
        self._unreadable_error: ProtocolError | None = None
        calls = LauncherCallbacks(self._on_gone, self._on_failed, self._start_waiting_worlds)
        self._launcher = LauncherClient(state / "shims.log", descriptors, calls)
        self._server = ControllerStream(self, link)
        self._access: ApplicationAccess | None = None
        self._slots = SlotCpus(settings.slots, settings.cpus)
        self._memory_limits = MemoryLimits(settings.name, state)
        self._last_server = read_generation(state / "generation")
        callbacks = UserWorldCallbacks(self._on_shim, self._watch_shim, self._not_started)
        self._users = make_user_worlds(settings, self._worlds, callbacks)
        helper = self._helper = self._users.helper if self._users else None
        found = helper.controllers() if helper else find_controllers()
        self._containment = describe(self._slots, found, bind=settings.bind)
        own_shims = ShimListener(state, SOCKET_NAME, self._on_shim)
        self._listeners = [own_shims, *([self._users] if self._users else ())]
        self._self_test = SelfTest(
            spool_folder(state),
            settings.slots,
            lambda: self._server.report(_ABLE),
            helper.find_problem if helper else str,
        )

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until cancelled; call ``on_ready`` once the worlds that run here are known.

        Raises:
            RefusedError: the server refuses this node.
            ProtocolError: a world here needs another version of Pliant; it continues to run.
        """
        await self._read_worlds()
        for listener in self._listeners:
            await listener.open()
        launcher = asyncio.create_task(self._launcher.run())
        try:
            await self._adopt()
            on_ready()
            link = asyncio.create_task(self._server.run())
            try:
                unreadable = asyncio.create_task(self._unreadable.wait())
                ends = (launcher, link, unreadable)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                unreadable.cancel()
                for end in (launcher, link):
                    if end.done():
                        end.result()
                if self._unreadable_error is not None:
                    raise self._unreadable_error
            finally:
                link.cancel()
                await asyncio.gather(link, return_exceptions=True)
        finally:
            launcher.cancel()
            await asyncio.gather(launcher, return_exceptions=True)
            for listener in self._listeners:
                await listener.close()

    def reload(self, settings: ControllerSettings) -> tuple[list[str], list[str]]:
        """Apply the changed settings to all jobs that start from now on.

        Returns:
            The keys that were applied, and those whose change needs a restart of the controller.
        """
        self._settings, taken, others = reload(self._settings, settings)
        return taken, others

    # ------------------------------------------------------------------ taking over

    async def _read_worlds(self) -> None:
        spool_folder(self._state).mkdir(mode=0o700, exist_ok=True)
        worlds = await read_worlds(spool_folder(self._state), self._boot, self._helper)
        self._worlds |= {world.name: world for world in worlds}

    async def _adopt(self) -> None:
        """Ask running shims to connect, and clean up the worlds of shims that have ended."""
        for world in list(self._worlds.values()):
            if self._users is not None and world.shim_unknown and world.request.by_helper:
                await self._users.find_shim(world)
            if world.ended or world.shim is None:
                continue
            if world.shim.alive():
                self._watch_shim(world)
                with suppress(PermissionError):  # another user's: it connects within seconds
                    os.kill(world.shim.pid, signal.SIGUSR1)
            else:
                self._on_shim_ended(world)
        unasked = any(w.shim_unknown or w.request.by_helper for w in self._worlds.values())
        try:
            async with asyncio.timeout(_UNKNOWN_SHIM_S if unasked else _ADOPTION_S):
                while self._silent_shims():
                    self._shim_called.clear()
                    await self._shim_called.wait()
        except TimeoutError:
            logger.warning("shims do not answer: %s", ", ".join(self._silent_shims()))
        for world in [world for world in self._worlds.values() if world.shim_unknown]:
            self._on_shim_ended(world)
        if self._worlds:
            logger.info("took over %s", ", ".join(self._worlds))

    def _silent_shims(self) -> list[str]:
        return [
            world.name
            for world in self._worlds.values()
            if not world.ended and world.channel is None and (world.shim or world.shim_unknown)
        ]

    def _start_waiting_worlds(self) -> None:
        """Repeat the orders of worlds without a shim to a new launcher.

        If a world gets two shims that way, the second one ends.
        """
        for world in self._worlds.values():
            is_waiting = not (world.ended or world.shim or world.shim_unknown)
            if is_waiting and not world.request.by_helper:
                self._launcher.start_world(str(world.spool.directory))

    # ------------------------------------------------------------------ the server

    def registration(self) -> wire.Register:
        """Return the registration of this node: its properties and its worlds."""
        worlds, as_user = self._worlds.values(), self._users is not None
        host = self._settings, self._containment
        return make_registration(*host, self._last_server, worlds, runs_as_user=as_user)

    def on_welcome(self, welcome: wire.Welcome) -> list[wire.NodeReport]:
        """Accept a server, and return the reports to repeat to it.

        Raises:
            StaleServerError: orders of a newer server have been carried out here.
        """
        server = ServerStart(welcome.generation, welcome.life)
        self._slots.first_processor = welcome.first_processor
        if why := self._last_server.rejection(server):
            raise StaleServerError(why)
        if server != self._last_server:
            self._last_server = server
            write_generation(self._state / "generation", server)
            # The database of this server may be an older copy that lacks some exits.
            for world in self._worlds.values():
                world.acknowledged.clear()
        reports = [report for world in self._worlds.values() for report in world.unacknowledged()]
        # After the exits: one that names a fault of this node is older than the self-test.
        return [*reports, _ABLE] if self._self_test.is_able else reports

    def usage(self) -> list[wire.JobUsage]:
        """Return the resource usage of each job on this node.

        This also finds shims that ended unnoticed, and ends jobs that exceed a limit.
        """
        self._find_ended_shims()
        self._self_test.test_if_due()
        cgroup.sweep_jobs()
        here = [each for each in self._worlds.values() if each.shim is not None and not each.ended]
        used = job_usage((each.request.job, each.shim.pid) for each in here if each.shim)
        beyond = self._memory_limits.exceeded(used, self._worlds.values())
        for job, reason in [*over_process_limit(used, self._settings.most_processes), *beyond]:
            logger.warning("job %d is ended: %s", job, reason)
            for world in here:
                if world.request.job == job:
                    self._kill_watcher.order(world, [], 0, reason)
        return used

    def needs_contact(self) -> bool:
        """Return whether a world here must end if the server is out of contact for too long."""
        return any(map(confirmed_heartbeat.is_limited, self._worlds.values()))

    def on_contact(self, at: float) -> None:
        """Tell the shims that the server received what was sent at ``at``, in monotonic seconds."""
        confirmed_heartbeat.send_contact(self._worlds.values(), at)

    def on_access(self, access: ApplicationAccess | None, roots: bytes | None = None) -> None:
        """Give the applications on this node a new server address, or new root certificates."""
        if roots is not None and self._access is not None:
            access = replace(self._access, roots=roots)
        if access is not None and access != self._access:
            access.update(world for world in self._worlds.values() if not world.ended)
        self._access = access

    def carry_out(self, order: wire.NodeOrder) -> None:
        """Carry out an order of the server; repeating one does no harm."""
        match order.WhichOneof("body"):
            case "start_world":
                self._start(order.start_world)
            case "fence_done":
                self._barrier_done(order.fence_done)
            case "control":
                self._control(order.control)
            case "kill":
                self._kill(order.kill)
            case "signal":
                send_signal(self._worlds.values(), order.signal)
            case "exit_ack":
                self._acknowledged(order.exit_ack)
            case "relay":
                if (world := self._worlds.get(order.relay.world)) is not None:
                    world.pass_on(order.relay)
            case other:
                logger.warning("unknown order: %s", other)

    def _start(self, order: wire.StartWorld) -> None:
        known = self._worlds.get(order.world)
        if known is not None:
            for report in repeat_start(order, known, self._settings):
                self._server.report(report)
            return
        folder, at = spool_folder(self._state), self._server.contact.at
        if refusal := refuse_start(order, self._settings, order.world in self._removed, at):
            self._server.report(refusal)
            return
        users, access = self._users, self._access
        shares = NodeShares(self._slots, self._worlds.values(), self._settings.gres)
        try:
            world = create_world(order, self._settings, folder, at, shares, access, users)
        except NotStartedError as error:
            logger.error("cannot start %s: %s", order.world, error)
            self._server.report(error.report)
            if error.node_fault:
                self._self_test.start_failed()
            return
        logger.info("start %s: %d ranks of job %d", order.world, len(order.ranks), order.job)
        self._worlds[order.world] = world
        failpoint("controller.start.spooled")
        if users is not None:
            users.start(world, order, access)
        else:
            self._launcher.start_world(str(world.spool.directory))
        failpoint("controller.start.told")

    def _barrier_done(self, order: wire.FenceDone) -> None:
        world = self._worlds.get(order.world)
        if world is None or world.barrier is None or world.barrier.sequence != order.sequence:
            return
        world.barrier = None
        pairs = dict(order.pairs)
        world.send({"op": "fence_done", "sequence": order.sequence, "pairs": pairs})

    def _control(self, order: wire.Control) -> None:
        if (world := self._worlds.get(order.world)) is not None:
            text = order.message.decode("utf-8", "replace")
            world.send({"op": "control", "ranks": list(order.ranks), "message": text})

    def _kill(self, order: wire.Kill) -> None:
        for world in of_job(self._worlds.values(), order):
            self._kill_watcher.order(world, list(order.processors), order.grace_s)

    def _acknowledged(self, order: wire.ExitAck) -> None:
        if (world := self._worlds.get(order.world)) is not None:
            world.acknowledged |= set(order.ranks)
            self._remove_if_done(world)

    # ------------------------------------------------------------------ shims

    def _on_shim(self, sent: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        try:
            self._on_shim_message(sent, writer)
        except ProtocolError as error:
            self._stop_unreadable(error)

    def _stop_unreadable(self, error: ProtocolError) -> None:
        """Stop this controller, but no job: only another version can read the files of a world."""
        self._unreadable_error = error
        self._unreadable.set()

    def _on_shim_message(self, sent: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if sent["op"] == "hello":
            self._on_hello(sent, writer)
            return
        world = next((w for w in self._worlds.values() if w.channel is writer), None)
        if world is None:
            return
        match sent["op"]:
            case "ready":
                for _ in message("controller.ready.in"):
                    world.ready = True
                    self._server.report(world.ready_report())
            case "fence":
                self._on_barrier(world, sent)
            case "relay":
                self._server.report(world.relay_report(sent))
            case "exits":
                for _ in message("controller.exits.in"):
                    self._report_exits(world, sent["exits"])

    def _on_hello(self, sent: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        world = self._worlds.get(sent["world"])
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
            self._server.report(world.ready_report())
        if sent["fence"] is not None:
            self._on_barrier(world, sent["fence"])
        self._report_exits(world, sent["exits"])
        confirmed_heartbeat.send_contact((world,), self._server.contact.at)
        writer.writelines(world.unsent)
        world.unsent.clear()
        share_cpus(world, self._worlds.values(), self._slots)
        self._shim_called.set()

    def _on_barrier(self, world: LocalWorld, sent: dict[str, Any]) -> None:
        if not world.request.spans_nodes:
            return  # shims complete these barriers themselves; this one is false
        world.barrier = wire.Fence(world=world.name, sequence=sent["sequence"], pairs=sent["pairs"])
        for _ in message("controller.fence.in"):
            self._server.report(wire.NodeReport(fence=world.barrier))

    def _report_exits(self, world: LocalWorld, exits: list[dict[str, Any]]) -> None:
        ends = [SpooledExit.from_record(end) for end in exits]
        if world.is_last_claim(ends):
            # It is believed when no process is left. The shim ends now, or it is killed.
            self._kill_watcher.order(world, [], 0)
        elif new := world.add_exits(ends):
            # Before the processors may be given to another job.
            share_cpus(world, self._worlds.values(), self._slots)
            self._server.report(world.exits_report(new))
        if world.all_ended:
            self._end(world)

    def _watch_shim(self, world: LocalWorld) -> None:
        if world.shim is not None:
            world.shim_watch = watch_process(world.shim.pid, lambda: self._on_shim_ended(world))
        else:
            asyncio.get_running_loop().call_soon(self._on_shim_ended, world)

    def _on_gone(self, directory: str) -> None:
        """Handle that a shim has finished its world, was killed, or has left it to another shim."""
        world = self._worlds.get(Path(directory).name)
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

    def _on_failed(self, directory: str, reason: str) -> None:
        """Report that no shim could be forked, so that no rank of this world was started."""
        world = self._worlds.get(Path(directory).name)
        if world is None or world.ended or world.spool.shim() is not None:
            return
        self._not_started(world, reason, node_fault=True)

    def _not_started(
        self, world: LocalWorld, reason: str, *, node_fault: bool = False, **more: bool
    ) -> None:
        logger.error("cannot start %s: %s", world.name, reason)
        reason = f"{CANNOT_START if node_fault else self._settings.name}: {reason}"
        new = add_missing_exits(world, reason, NOT_USABLE, node_fault=node_fault, **more)
        world.spool.remove_secrets()
        self._server.report(world.exits_report(new))
        if node_fault:
            self._self_test.start_failed()
        self._end(world)

    def _on_shim_ended(self, world: LocalWorld) -> None:
        """Read the exits of a world whose shim has ended, and clean up if some are missing."""
        if world.ended or world.cleaning_up:
            return
        world.channel = None
        try:
            saved = list(world.spool.exits().values())
        except ProtocolError as error:
            self._stop_unreadable(error)
            return
        if not world.is_last_claim(saved) and (new := world.add_exits(saved)):
            self._server.report(world.exits_report(new))
        if world.all_ended:
            self._end(world)
        else:
            world.cleaning_up = True
            task = asyncio.create_task(self._clean_up(world, saved))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _clean_up(self, world: LocalWorld, saved: list[SpooledExit]) -> None:
        new = await clean_up(world, saved)
        share_cpus(world, self._worlds.values(), self._slots)
        self._server.report(world.exits_report(new))
        self._end(world)

    def _end(self, world: LocalWorld) -> None:
        world.end()
        self._shim_called.set()
        self._remove_if_done(world)

    def _find_ended_shims(self) -> None:
        """Find shims whose end was not noticed, for example if their launcher died with them."""
        for world in list(self._worlds.values()):
            if (world.channel is None or world.shim_watch is None) and not world.ended:
                who = world.shim or world.spool.shim()
                if who is not None and not who.alive():
                    self._on_shim_ended(world)

    def _remove_if_done(self, world: LocalWorld) -> None:
        if world.is_done and self._worlds.pop(world.name, None) is not None:
            world.spool.remove()
            self._removed[world.name] = None
            if len(self._removed) > _MAX_REMOVED:
                self._removed.popitem(last=False)

"""The controller of one node: carries out orders and reports what happened.

Everything runs in one asyncio loop. An order is saved in the spool before it is carried out, so
that this process can be killed at any time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.faults import failpoint
from pliant.nodectl.controller.launcher_client import LauncherCallbacks, LauncherClient
from pliant.nodectl.controller.memory_load import LoadMeter
from pliant.nodectl.controller.node_worlds import NodeWorlds, WorldCallbacks
from pliant.nodectl.controller.server_connection import confirmed_heartbeat
from pliant.nodectl.controller.server_connection.last_server_generation import (
    ServerStart,
    read_generation,
    write_generation,
)
from pliant.nodectl.controller.server_connection.registration import (
    make_registration,
    memory_of_jobs,
)
from pliant.nodectl.controller.server_connection.server_links import ServerLink
from pliant.nodectl.controller.server_connection.server_stream import (
    ControllerStream,
    StaleServerError,
)
from pliant.nodectl.controller.start_order import (
    NodeShares,
    NotStartedError,
    create_world,
    refuse_start,
    repeat_start,
)
from pliant.nodectl.controller.start_self_test import StartSelfTest
from pliant.nodectl.controller.usage import MemoryLimits, job_usage, over_process_limit
from pliant.nodectl.controller.world_state import (
    send_signal,
    spool_folder,
)
from pliant.nodectl.host import cgroup
from pliant.nodectl.host.containment import SlotCpus, describe, find_cgroup_controllers
from pliant.nodectl.settings import ControllerSettings, reload
from pliant.protos import node_pb2 as wire

if TYPE_CHECKING:
    # It loads the package cryptography, which a node without a certificate does not need.
    from pliant.nodectl.certified.server_address_for_applications import ApplicationAccess

logger = logging.getLogger("pliant.nodectl")

_ABLE = wire.NodeReport(able=wire.Able())


class Controller:
    """Carries out the server's orders on one node."""

    def __init__(
        self, settings: ControllerSettings, state: Path, link: ServerLink, descriptors: int
    ) -> None:
        self._settings = settings
        self._state = state
        self._server = ControllerStream(self, link)
        self._access: ApplicationAccess | None = None
        self._slots = SlotCpus(settings.slots, settings.cpus)
        self._memory_limits = MemoryLimits(settings.name, state)
        self._load = LoadMeter(memory_of_jobs(settings))
        self._last_server = read_generation(state / "generation")
        callbacks = WorldCallbacks(
            self._server.report,
            lambda: self._server.contact.confirmed_at,
            self._on_start_failed,
        )
        self._node_worlds = NodeWorlds(settings, state, self._slots, callbacks)
        self._worlds, self._users = self._node_worlds.by_name, self._node_worlds.users
        calls = LauncherCallbacks(
            self._node_worlds.on_shim_gone,
            self._node_worlds.on_shim_not_forked,
            self._start_waiting_worlds,
        )
        self._launcher = LauncherClient(state / "shims.log", descriptors, calls)
        helper = self._users.helper if self._users else None
        found = helper.controllers() if helper else find_cgroup_controllers()
        self._containment = describe(self._slots, found, bind=settings.bind)
        self._self_test = StartSelfTest(
            spool_folder(state),
            settings.slots,
            lambda: self._server.report(_ABLE),
            helper.find_problem if helper else str,
        )

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until cancelled; call ``on_ready`` once the jobs still running here were found.

        Raises:
            RefusedError: the server refuses this node.
            ProtocolError: the files of a job are of another version of Pliant. The job continues.
        """
        await self._node_worlds.open()
        launcher = asyncio.create_task(self._launcher.run())
        try:
            await self._node_worlds.adopt()
            on_ready()
            link = asyncio.create_task(self._connect())
            unreadable = asyncio.create_task(self._node_worlds.raise_if_unreadable())
            ends = (launcher, link, unreadable)
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    if end.done():
                        end.result()
            finally:
                link.cancel()
                unreadable.cancel()
                await asyncio.gather(link, unreadable, return_exceptions=True)
        finally:
            launcher.cancel()
            await asyncio.gather(launcher, return_exceptions=True)
            await self._node_worlds.close()

    async def _connect(self) -> None:
        """Register at the server and carry out its orders, until cancelled or refused.

        In multi-user mode the root helper starts all jobs. So if no job runs here, the controller
        waits until the root helper answers, and registers then.
        """
        if self._users is not None and not self._worlds:
            await self._users.wait_for_helper()
        await self._server.run()

    def reload(self, settings: ControllerSettings) -> tuple[list[str], list[str]]:
        """Apply the changed settings to all jobs that start from now on.

        Returns:
            The keys that were applied, and those whose change needs a restart of the controller.
        """
        self._settings, taken, others = reload(self._settings, settings)
        return taken, others

    def _start_waiting_worlds(self) -> None:
        """Ask a restarted launcher for a shim for each world (set of ranks) that has none.

        The former launcher may have started a shim. If a world gets two, the second one exits.
        """
        for world in self._node_worlds.worlds_without_shim():
            self._launcher.start_world(str(world.spool.directory))

    def _on_start_failed(self) -> None:
        self._self_test.start_failed()

    # ------------------------------------------------------------------ the server

    def registration(self) -> wire.Register:
        """Return the message with which this node registers: its properties and the ranks here."""
        version = self._users.helper.order_version if self._users is not None else None
        host, worlds = (self._settings, self._containment), self._worlds.values()
        return make_registration(*host, self._last_server, worlds, order_version=version)

    def on_welcome(self, welcome: wire.Welcome) -> list[wire.NodeReport]:
        """Accept the server that has answered the registration; return reports that it may lack.

        Raises:
            StaleServerError: this node must not obey the server, for example because it has carried
                out orders of a newer one.
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
        """Return how much memory and how many processes each job uses on this node.

        This also finds shims that ended unnoticed, and ends jobs that exceed a limit.
        """
        self._node_worlds.find_ended_shims()
        self._self_test.test_if_due()
        cgroup.sweep_jobs()
        here = [each for each in self._worlds.values() if each.shim is not None and not each.ended]
        used = job_usage((each.request.job, each.shim.pid) for each in here if each.shim)
        beyond = self._memory_limits.exceeded(used, self._worlds.values())
        for job, reason in [*over_process_limit(used, self._settings.most_processes), *beyond]:
            logger.warning("job %d is ended: %s", job, reason)
            self._node_worlds.kill_job(job, reason)
        return used

    def load(self) -> wire.Load | None:
        """Return the memory and page faults of jobs here; None if the settings switch this off."""
        interval_s = self._settings.load_interval_s
        if not interval_s:
            return None
        here = [each for each in self._worlds.values() if each.shim is not None and not each.ended]
        shims = [(each.request.job, each.request.run, each.shim) for each in here if each.shim]
        return self._load.measure(shims, time.monotonic(), interval_s)

    def needs_contact(self) -> bool:
        """Return whether any ranks here must end if the server is out of contact for too long."""
        return any(map(confirmed_heartbeat.must_end_without_contact, self._worlds.values()))

    def on_contact(self, at: float) -> None:
        """Send the time of the last confirmed heartbeat to the shims, which check the lease.

        Args:
            at: the time at which the heartbeat was sent, in seconds of the monotonic clock.
        """
        confirmed_heartbeat.send_contact(self._worlds.values(), at)

    def on_access(self, access: ApplicationAccess | None, roots: bytes | None = None) -> None:
        """Pass a new server address, or new root certificates, on to the applications on this node.

        Args:
            access: the address and the roots; None if applications do not connect over TLS.
            roots: new roots for the address that is known already; then ``access`` is ignored.
        """
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
                self._node_worlds.kill(order.kill)
            case "signal":
                send_signal(self._worlds.values(), order.signal)
            case "exit_ack":
                self._node_worlds.acknowledge(order.exit_ack)
            case "remove_checkpoints" if self._users is not None:
                self._users.remove_checkpoints(order.remove_checkpoints, self._server.report)
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
        folder, at = spool_folder(self._state), self._server.contact.confirmed_at
        if refusal := refuse_start(
            order, self._settings, order.world in self._node_worlds.removed, at
        ):
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
                self._on_start_failed()
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

"""The controller's state of one world, and the reports that it sends about it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pliant.nodectl.controller.users.helper_client import (
    HelperClient,
    HelperRefusedError,
    HelperUnavailableError,
)
from pliant.nodectl.host.containment import SlotCpus
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.step_record import StepRecord
from pliant.nodectl.world_folder import SpooledExit, StartRequest, WorldFolder
from pliant.protos import node_pb2 as wire
from pliant.protos.sanitize_text import sanitize_text
from pliant.protos.versions import ProtocolError

logger = logging.getLogger("pliant.nodectl")


class ProcessWatch:
    """Calls a function when a process has ended, whether it is a child of this one or not."""

    def __init__(self, pid: int, call: Callable[[], None]) -> None:
        self._handle = os.pidfd_open(pid)
        self._call = call
        asyncio.get_running_loop().add_reader(self._handle, self._ended)

    def cancel(self) -> None:
        """Stop watching, so that the function is not called any more."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _ended(self) -> None:
        self.cancel()
        self._call()


def watch_process(pid: int, call: Callable[[], None]) -> ProcessWatch | None:
    """Call a function when a process ends, or soon if the process has ended already.

    Returns:
        The watch. None if the process has ended already, or if it cannot be watched; in the second
        case the function is never called.
    """
    try:
        return ProcessWatch(pid, call)
    except ProcessLookupError:
        asyncio.get_running_loop().call_soon(call)
    except OSError as error:  # no descriptor is left: each heartbeat checks the process
        logger.warning("cannot watch process %d: %s", pid, error.strerror)
    return None


@dataclass(slots=True)
class LocalWorld:
    """One world (set of ranks) on this node, until the server has acknowledged all their exits."""

    request: StartRequest
    spool: WorldFolder
    shim: ProcessIdentity | None = None
    ready: bool = False
    #: A barrier of a world that spans nodes, until the server says that it is complete.
    barrier: wire.Fence | None = None
    exits: dict[int, SpooledExit] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    ended: bool = False  # all exits are known, and its shim has ended or finished it
    cleaning_up: bool = False
    shim_unknown: bool = False  # a shim started it, but there is no record of that shim
    shim_watch: ProcessWatch | None = None  # of the shim's process
    channel: asyncio.StreamWriter | None = None
    unsent: list[bytes] = field(default_factory=list)  # for a shim that is not connected yet
    helper: HelperClient | None = None  # if the root helper starts and ends its processes
    saved: set[int] = field(default_factory=set)  # ranks whose exits a user's shim has reported

    @property
    def name(self) -> str:
        """Return the name of this set of ranks, which no other one in the cluster has."""
        return self.request.world

    def accepts_shim(self, pid: int) -> bool:
        """Return whether a process that connects may be the shim of these ranks.

        If the shim is known, only its own process may connect. If not, any process may, until the
        controller has begun to end the processes of these ranks.
        """
        return not self.cleaning_up if self.shim is None else self.shim.pid == pid

    def record_shim(self) -> None:
        """Save which process is the shim, unless there is a record of the shim already."""
        if self.shim_unknown and self.shim is not None:
            self.shim_unknown = False
            with suppress(OSError):  # then the next controller also waits for the shim
                self.spool.claim(self.shim)

    @property
    def all_ended(self) -> bool:
        """Return whether the exits of all local ranks are known."""
        return len(self.exits) == len(self.request.ranks)

    def completes_exits(self, exits: Iterable[SpooledExit]) -> bool:
        """Return whether ``exits`` complete those of a world that the root helper started.

        False if the root helper has not started this world. If it has, the shim runs as the job's
        user, who can control it with a debugger and make it report invented exits. So processors
        are freed only when the root helper has seen the last process of the world end.
        """
        known = self.exits.keys() | {end.rank for end in exits}
        return self.helper is not None and len(known) == len(self.request.ranks)

    def may_have_finished(self) -> bool:
        """Return whether the exits of all ranks on this node are saved.

        True also if another version of Pliant has saved exits, which then cannot be read.
        """
        try:
            return len(self.spool.exits()) == len(self.request.ranks)
        except ProtocolError:
            return True  # of another version

    @property
    def is_done(self) -> bool:
        """Return whether all ranks have ended and the server has acknowledged all their exits."""
        return self.ended and self.acknowledged >= {rank for rank, _ in self.request.ranks}

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the shim, now or when it connects."""
        line = json.dumps(message).encode() + b"\n"
        if self.channel is not None:
            self.channel.write(line)
        elif not self.ended:
            self.unsent.append(line)

    def update_access(self, address: str, roots: bytes) -> None:
        """Store a new server address and new roots for an application that connects over TLS.

        Raises:
            OSError: the files cannot be written.
        """
        if self.request.by_helper:  # the shim writes them, because the folder is its user's
            self.send({"op": "access", "address": address, "roots": roots.decode("ascii")})
        else:
            self.spool.update_access(address, roots)

    def add_exits(self, exits: Iterable[SpooledExit]) -> list[SpooledExit]:
        """Add exits of ranks, and return those that were not known before."""
        new = [end for end in exits if end.rank not in self.exits]
        self.exits |= {end.rank: end for end in new}
        return new

    def end(self) -> None:
        """Mark these ranks as ended, and disconnect their shim, which may serve others next."""
        self.ended = True
        self.channel = None
        if self.shim_watch is not None:
            self.shim_watch.cancel()

    @property
    def live_processors(self) -> list[int]:
        """Return the processors of the ranks that have not ended."""
        return [processor for rank, processor in self.request.ranks if rank not in self.exits]

    def to_live_world(self) -> wire.LiveWorld:
        """Return the entry of these ranks in the message that registers the node at the server."""
        request = self.request
        return wire.LiveWorld(
            world=request.world,
            job=request.job,
            run=request.run,
            resize=request.resize,
            live_processors=self.live_processors,
            ready=self.ready,
        )

    def ready_report(self) -> wire.NodeReport:
        """Return the report that these ranks are ready to join the running job."""
        request = self.request
        return wire.NodeReport(
            world_ready=wire.WorldReady(
                world=request.world, job=request.job, run=request.run, resize=request.resize
            )
        )

    def relay_report(self, sent: dict[str, Any]) -> wire.NodeReport:
        """Return a report that carries a packet to this world's shim on another node.

        Args:
            sent: the shim's message, with the packet and a rank that runs on the other node.
        """
        relay = wire.Relay(
            world=self.name,
            from_rank=self.request.ranks[0][0],
            to_rank=sent["to"],
            data=sent["packet"].encode("ascii"),
        )
        return wire.NodeReport(relay=relay)

    def pass_on(self, order: wire.Relay) -> None:
        """Pass a packet from another node on to the shim.

        If the shim is not connected, the packet is dropped; its sender repeats it.
        """
        if self.channel is not None:
            packet = order.data.decode("ascii", "replace")
            self.send({"op": "relay", "from": order.from_rank, "packet": packet})

    def exits_report(self, exits: Iterable[SpooledExit]) -> wire.NodeReport:
        """Return the report that tells the server how the ranks in ``exits`` have ended."""
        request = self.request
        return wire.NodeReport(
            ranks_exited=wire.RanksExited(
                world=request.world,
                job=request.job,
                run=request.run,
                resize=request.resize,
                exits=[_wire_exit(end) for end in exits],
            )
        )

    def unacknowledged(self) -> list[wire.NodeReport]:
        """Return all reports about these ranks that the server may not have received."""
        reports = []
        if self.ready and not self.exits:
            reports.append(self.ready_report())
        if self.barrier is not None:
            reports.append(wire.NodeReport(fence=self.barrier))
        exits = [end for rank, end in self.exits.items() if rank not in self.acknowledged]
        if exits:
            reports.append(self.exits_report(exits))
        return reports


def _wire_exit(end: SpooledExit) -> wire.RankExit:
    return wire.RankExit(
        rank=end.rank,
        processor=end.processor,
        code=end.code,
        signal=end.signal,
        reason=sanitize_text(end.reason),
        at=end.at,
        cut_off=end.cut_off,
        node_fault=end.node_fault,
        user_refused=end.user_refused,
        shim_lost=end.shim_lost,
        steps=[_wire_step(step) for step in end.steps],
    )


def _wire_step(step: StepRecord) -> wire.Step:
    sizes = [wire.StepSize(start=at, processors=size) for at, size in step.sizes]
    return wire.Step(**{**asdict(step), "sizes": sizes})


def refusal_report(
    order: wire.StartWorld,
    reason: str,
    *,
    cut_off: bool = False,
    node_fault: bool = False,
    user_refused: bool = False,
) -> wire.NodeReport:
    """Return a report in which all ranks of an order have ended without being started.

    Args:
        order: the order to start them.
        reason: why, for the user.
        cut_off: whether the node has lost contact with the server.
        node_fault: whether the cause is a fault of this node.
        user_refused: whether this node does not start processes of the job's user.
    """
    exits = [
        wire.RankExit(
            rank=place.rank,
            processor=place.processor,
            code=126,
            reason=sanitize_text(reason),
            cut_off=cut_off,
            node_fault=node_fault,
            user_refused=user_refused,
        )
        for place in order.ranks
    ]
    return wire.NodeReport(
        ranks_exited=wire.RanksExited(
            world=order.world, job=order.job, run=order.run, resize=order.resize, exits=exits
        )
    )


def add_missing_exits(
    world: LocalWorld,
    reason: str,
    code: int = 1,
    *,
    node_fault: bool = False,
    user_refused: bool = False,
    shim_lost: bool = False,
) -> list[SpooledExit]:
    """Record an exit with ``reason`` for each rank that has none; return the recorded exits.

    Args:
        world: the set of ranks.
        reason: why they have ended, for the user.
        code: the exit code to record.
        node_fault: whether the cause is a fault of this node.
        user_refused: whether this node does not start processes of the job's user.
        shim_lost: whether they have ended because their shim was killed or the node was restarted.
    """
    missing = [
        SpooledExit(
            rank,
            processor,
            code,
            0,
            reason,
            time.time(),
            node_fault=node_fault,
            user_refused=user_refused,
            shim_lost=shim_lost,
        )
        for rank, processor in world.request.ranks
        if rank not in world.exits
    ]
    if missing:
        try:
            world.spool.save_exits(missing)
        except OSError as error:  # the server gets and stores the exits anyway
            logger.error("%s: cannot note the ends: %s", world.name, error)
    return world.add_exits(missing)


def share_cpus(changed: LocalWorld, worlds: Iterable[LocalWorld], slots: SlotCpus) -> None:
    """Restrict a job on this node to the CPUs of its present processors.

    If the ranks of the job share CPUs, all of them are bound to all these CPUs. Otherwise only the
    control group of the changed world is restricted, if the root helper manages that group.

    Args:
        changed: the world (set of ranks) of the job in which ranks have started or ended.
        worlds: all worlds here.
        slots: the CPUs of the slots of this node.
    """
    if not changed.request.shares_cpus:
        _limit_by_helper(changed, slots.union(changed.live_processors))
        return
    job = changed.request.job
    sharing = [world for world in worlds if world.request.job == job and not world.ended]
    cpus = slots.union({number for world in sharing for number in world.live_processors})
    for world in sharing:
        _limit_by_helper(world, cpus)
        world.send({"op": "cpus", "cpus": cpus})


def _limit_by_helper(world: LocalWorld, cpus: list[int]) -> None:
    """Order the root helper to restrict the control group of the world's ranks to ``cpus``."""
    if world.helper is None or not (world.request.cpus and cpus):
        return
    try:
        world.helper.limit_cpus(world.name, cpus)
    except (HelperUnavailableError, HelperRefusedError) as error:
        logger.warning("%s: its control group keeps its CPUs: %s", world.name, error)


def spool_folder(state: Path) -> Path:
    """Return the path of the spool, which has a folder for each set of ranks on this node.

    Args:
        state: the state folder of the node.
    """
    return state / "spool"


def of_job(worlds: Iterable[LocalWorld], order: wire.Kill | wire.Signal) -> Iterator[LocalWorld]:
    """Yield the worlds (sets of ranks) on this node to which an order applies.

    The order names a job and one execution (run) of the job. If it names processors, too, only
    worlds with ranks on one of them are yielded.
    """
    wanted = set(order.processors) if isinstance(order, wire.Kill) else set()
    for world in worlds:
        request = world.request
        is_of_job = (request.job, request.run) == (order.job, order.run)
        if is_of_job and (not wanted or wanted & {at for _, at in request.ranks}):
            yield world


def send_signal(worlds: Iterable[LocalWorld], order: wire.Signal) -> None:
    """Order the shims of a job to send a signal to its ranks."""
    for world in of_job(worlds, order):
        world.send({"op": "signal", "number": order.number})

"""What the controller knows about each world on its node, and what it tells the server of it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pliant.nodectl.host.procfs import Identity
from pliant.nodectl.spool import Exit, Spool, StartRequest
from pliant.protos import node_pb2 as wire
from pliant.protos.texts import words

logger = logging.getLogger("pliant.nodectl")


class ProcessWatch:
    """Calls when a process, not necessarily a child, has ended."""

    def __init__(self, pid: int, call: Callable[[], None]) -> None:
        self._handle = os.pidfd_open(pid)
        self._call = call
        asyncio.get_running_loop().add_reader(self._handle, self._ended)

    def cancel(self) -> None:
        """Do not call, if it has not yet happened."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _ended(self) -> None:
        self.cancel()
        self._call()


def watch_process(pid: int, call: Callable[[], None]) -> ProcessWatch | None:
    """Call when a process has ended; at once when it has already; None: it cannot be watched."""
    try:
        return ProcessWatch(pid, call)
    except ProcessLookupError:
        asyncio.get_running_loop().call_soon(call)
    except OSError as error:  # no descriptor: it is looked after with each beat
        logger.warning("cannot watch process %d: %s", pid, error.strerror)
    return None


@dataclass(slots=True)
class World:
    """One world on this node, from the order to the last acknowledgement."""

    request: StartRequest
    spool: Spool
    shim: Identity | None = None
    ready: bool = False
    fence: wire.Fence | None = None
    exits: dict[int, Exit] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    ended: bool = False  # its shim is gone, or done with it, and every end is known
    cleaning_up: bool = False
    shim_unknown: bool = False  # it was begun by a shim of which there is no record
    shim_watch: ProcessWatch | None = None  # of its shim
    channel: asyncio.StreamWriter | None = None
    unsent: list[bytes] = field(default_factory=list)  # for a shim that has not called yet

    @property
    def name(self) -> str:
        """Return its globally unique name."""
        return self.request.world

    def accepts_shim(self, pid: int) -> bool:
        """Return whether a process that calls as its shim may be that."""
        return not self.cleaning_up if self.shim is None else self.shim.pid == pid

    def record_shim(self) -> None:
        """Write its shim down again, if there was no record of it."""
        if self.shim_unknown and self.shim is not None:
            self.shim_unknown = False
            with suppress(OSError):  # the next controller waits for its call, too
                self.spool.claim(self.shim)

    @property
    def all_ended(self) -> bool:
        """Return whether the ends of all its local ranks are known."""
        return len(self.exits) == len(self.request.ranks)

    def all_exits_saved(self) -> bool:
        """Return whether the ends of all its local ranks are in the spool."""
        return len(self.spool.exits()) == len(self.request.ranks)

    @property
    def is_done(self) -> bool:
        """Return whether nobody needs it any more."""
        return self.ended and self.acknowledged >= {rank for rank, _ in self.request.ranks}

    def send(self, message: dict[str, Any]) -> None:
        """Tell its shim, at once or when it calls."""
        line = json.dumps(message).encode() + b"\n"
        if self.channel is not None:
            self.channel.write(line)
        elif not self.ended:
            self.unsent.append(line)

    def add_exits(self, exits: Iterable[Exit]) -> list[Exit]:
        """Take in ends; return those that are new."""
        new = [end for end in exits if end.rank not in self.exits]
        self.exits |= {end.rank: end for end in new}
        return new

    def end(self) -> None:
        """Let go of its shim, which may have another world soon."""
        self.ended = True
        self.channel = None
        if self.shim_watch is not None:
            self.shim_watch.cancel()

    def to_live_world(self) -> wire.LiveWorld:
        """Return it as it is registered."""
        request = self.request
        return wire.LiveWorld(
            world=request.world,
            job=request.job,
            run=request.run,
            resize=request.resize,
            live_processors=[
                processor for rank, processor in request.ranks if rank not in self.exits
            ],
            ready=self.ready,
        )

    def ready_report(self) -> wire.NodeReport:
        """Return the report that its newcomers wait."""
        request = self.request
        return wire.NodeReport(
            world_ready=wire.WorldReady(
                world=request.world, job=request.job, run=request.run, resize=request.resize
            )
        )

    def exits_report(self, exits: Iterable[Exit]) -> wire.NodeReport:
        """Return the report of some ends."""
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
        """Return all that a server which may have missed it must be told again."""
        reports = []
        if self.ready and not self.exits:
            reports.append(self.ready_report())
        if self.fence is not None:
            reports.append(wire.NodeReport(fence=self.fence))
        exits = [end for rank, end in self.exits.items() if rank not in self.acknowledged]
        if exits:
            reports.append(self.exits_report(exits))
        return reports


def _wire_exit(end: Exit) -> wire.RankExit:
    return wire.RankExit(
        rank=end.rank,
        processor=end.processor,
        code=end.code,
        signal=end.signal,
        reason=words(end.reason),
        at=end.at,
        cut_off=end.cut_off,
        node_fault=end.node_fault,
    )


def refusal_report(
    order: wire.StartWorld, reason: str, *, cut_off: bool = False, node_fault: bool = False
) -> wire.NodeReport:
    """Return the ends of ranks that could not even be handed to a shim."""
    exits = [
        wire.RankExit(
            rank=place.rank,
            processor=place.processor,
            code=126,
            reason=words(reason),
            cut_off=cut_off,
            node_fault=node_fault,
        )
        for place in order.ranks
    ]
    return wire.NodeReport(
        ranks_exited=wire.RanksExited(
            world=order.world, job=order.job, run=order.run, resize=order.resize, exits=exits
        )
    )


def add_missing_exits(
    world: World, reason: str, code: int = 1, *, node_fault: bool = False
) -> list[Exit]:
    """Write down an end for each rank of which none is known, and return those."""
    missing = [
        Exit(rank, processor, code, 0, reason, time.time(), node_fault=node_fault)
        for rank, processor in world.request.ranks
        if rank not in world.exits
    ]
    if missing:
        try:
            world.spool.save_exits(missing)
        except OSError as error:  # the server is told all the same, and keeps them
            logger.error("%s: cannot note the ends: %s", world.name, error)
    return world.add_exits(missing)


def spool_folder(state: Path) -> Path:
    """Return where the worlds of a node are."""
    return state / "spool"

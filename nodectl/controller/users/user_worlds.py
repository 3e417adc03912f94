"""Worlds that the root helper starts as the users of their jobs.

Their shims connect to a socket that every account of the host can reach. So the controller ignores
what a shim reports about other worlds or about this node. It identifies a shim by the user and the
process that the kernel names, and accepts exits of that shim's own ranks only. The controller saves
these exits itself, because it opens no file in a folder of a user.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pliant.nodectl.controller.shim_listener import ShimListener
from pliant.nodectl.controller.users.helper_client import (
    HelperClient,
    HelperRefusedError,
    HelperUnavailableError,
    encode_content,
)
from pliant.nodectl.controller.world_state import LocalWorld
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.settings import ControllerSettings
from pliant.nodectl.step_record import read_steps
from pliant.nodectl.world_folder import SpooledExit
from pliant.protos import node_pb2 as wire
from pliant.protos.daemons.peer_credentials import peer_process
from pliant.protos.sanitize_text import sanitize_text

if TYPE_CHECKING:
    from pliant.nodectl.certified.server_address_for_applications import ApplicationAccess

logger = logging.getLogger("pliant.nodectl")

DEFAULT_SOCKET = Path("/run/pliant/helper.sock")
SOCKET_NAME = "controller.sock"
#: The longest line of a shim: the pairs of the ranks of one node.
_MAX_LINE = 1 << 22
_MAX_PAIRS = 1 << 16
#: Longest packet for the shim of another node; arguments and environment of a step are in one.
_MAX_PACKET = 1 << 22
#: Connections of a user, beyond one for each world.
_MORE_CONNECTIONS = 4
#: Removals of checkpoints at the same time, because a slow file system holds a thread for each.
MAX_REMOVALS = 2
#: Seconds in which a helper that was killed during a start should answer again.
_RETURN_S, _POLL_S = 15.0, 0.5
#: Refusals for which another node, or a later start on this one, may have another answer.
#: Orders expire within minutes, so a node with a wrong clock refuses all of them.
_NODE_FAULTS = {
    *("worlds", "rate", "record", "start", "job-folder", "message", "cpus"),
    *("expired", "not-yet-valid"),
}
#: Refusals that an administrator can end. The job is held until then.
_USER_REFUSALS = {"unknown-user", "user", "group", "version"}


def find_helper(settings: ControllerSettings) -> HelperClient | None:
    """Return the helper of this node, or None in single-user mode."""
    if settings.helper:
        return HelperClient(Path(settings.helper).expanduser())
    return HelperClient(DEFAULT_SOCKET) if os.access(DEFAULT_SOCKET, os.W_OK) else None


def describe_mode(helper: HelperClient | None, node: str, user: str) -> str:
    """Return a log line that says as which users jobs run on this node."""
    if helper is None:
        return f"single-user mode: every job runs as {user}"
    try:
        found = helper.describe()
    except (HelperUnavailableError, HelperRefusedError) as error:
        return f"jobs run as their users, but none can start now: {error}"
    if found["node"] != node:
        return (
            f"no job can start: the root helper is set up for node {found['node']}, and this is "
            f"{node}; correct helper.json"
        )
    return f"jobs run as their users (root helper {helper.path})"


class OnFailed(Protocol):
    """A function that `UserWorlds` calls if a world (a set of ranks) could not be started."""

    def __call__(
        self, world: LocalWorld, reason: str, *, node_fault: bool = ..., user_refused: bool = ...
    ) -> None:
        """Report all ranks of a world (a set of ranks) as ended, because they were not started.

        Args:
            world: the world.
            reason: why, for the user.
            node_fault: whether the cause is a fault of this node.
            user_refused: whether this node does not start processes of the job's user.
        """


class UserWorldCallbacks(NamedTuple):
    """Functions of the controller that `UserWorlds` calls when a world starts, fails or reports."""

    #: A shim has sent a message, which was checked.
    on_message: Callable[[dict[str, Any], asyncio.StreamWriter], None]
    #: A world has a shim.
    on_started: Callable[[LocalWorld], None]
    #: A world was not started, for a reason. The keys are those of `add_missing_exits`.
    on_failed: OnFailed


def make_user_worlds(
    settings: ControllerSettings, worlds: Mapping[str, LocalWorld], callbacks: UserWorldCallbacks
) -> UserWorlds | None:
    """Return the object that starts the ranks of jobs under the accounts of the jobs' users.

    It is None in single-user mode.
    """
    helper = find_helper(settings)
    return UserWorlds(helper, worlds, callbacks) if helper is not None else None


class UserWorlds:
    """Starts worlds (sets of ranks) as their users, and listens for the shims of these worlds."""

    def __init__(
        self,
        helper: HelperClient,
        worlds: Mapping[str, LocalWorld],
        callbacks: UserWorldCallbacks,
    ) -> None:
        """Prepare to serve.

        Args:
            helper: the helper of this node.
            worlds: all worlds of this node by name, in a mapping that the controller updates.
            callbacks: called in the loop of the controller.
        """
        self.helper = helper
        self._worlds = worlds
        self._callbacks = callbacks
        self._tasks: set[asyncio.Task[None]] = set()
        self._removals = asyncio.Semaphore(MAX_REMOVALS)
        self._listener = ShimListener(
            helper.path.parent / "shims",
            SOCKET_NAME,
            self._on_shim,
            max_line=_MAX_LINE,
            accepts=self._accepts,
        )

    async def open(self) -> None:
        """Listen for shims, now or as soon as the helper has made the folder of the socket."""
        if problem := await self._listen():
            logger.error("no shim of a user can connect yet: %s", problem)
            task = asyncio.create_task(self._listen_later())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _listen(self) -> str:
        """Try to listen for shims; return why that failed, or an empty text."""
        try:
            await self._listener.open()
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        return ""

    async def _listen_later(self) -> None:
        while await self._listen():
            await asyncio.sleep(_POLL_S)
        logger.info("shims of users can connect")

    async def wait_for_helper(self) -> None:
        """Wait until the helper answers; before that, no job of a user can start on this node."""
        last = ""
        while problem := await asyncio.to_thread(self.helper.find_problem):
            if problem != last:
                logger.warning("this node registers when its root helper runs: %s", problem)
            last = problem
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """Close all connections; shims retry until the next controller listens."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.close()

    def folder(self, job: int, run: int) -> Path:
        """Return the path of the folder that only the job's user may read; each run has its own.

        A run is one execution of the job, which may be started again.
        """
        return self.helper.path.parent / "jobs" / f"{job}.{run}"

    # ------------------------------------------------------------------ starts

    def start(
        self, world: LocalWorld, order: wire.StartWorld, access: ApplicationAccess | None
    ) -> None:
        """Start a world (set of ranks) in the background through the root helper.

        Afterwards the callback ``on_started`` or ``on_failed`` is called.
        """
        files = (access.address, access.roots) if access is not None else None
        task = asyncio.create_task(self._start(world, order, files))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(
        self, world: LocalWorld, order: wire.StartWorld, access: tuple[str, bytes] | None
    ) -> None:
        content = encode_content(
            world.request, order.token, order.node_list, order.checkpoint_key, access
        )
        try:
            shim = await asyncio.to_thread(self.helper.start, order.signed_order, content)
        except HelperRefusedError as error:
            self._fail(world, error)
            return
        except HelperUnavailableError as error:
            found = await self._find_within(world.name, _RETURN_S)
            if found is None:
                self._fail(world, error)
                return
            shim = found
        self._note_shim(world, shim)
        if not world.ended:
            self._callbacks.on_started(world)

    def _fail(self, world: LocalWorld, error: HelperRefusedError | HelperUnavailableError) -> None:
        refusal = error.refusal if isinstance(error, HelperRefusedError) else None
        if not world.ended:
            self._callbacks.on_failed(
                world,
                str(error),
                node_fault=refusal is None or refusal in _NODE_FAULTS,
                user_refused=refusal in _USER_REFUSALS,
            )

    def remove_checkpoints(
        self, order: wire.RemoveCheckpoints, report: Callable[[wire.NodeReport], None]
    ) -> None:
        """Order the helper to remove the checkpoints of a job that has ended; report the result."""
        task = asyncio.create_task(self._remove_checkpoints(order, report))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _remove_checkpoints(
        self, order: wire.RemoveCheckpoints, report: Callable[[wire.NodeReport], None]
    ) -> None:
        async with self._removals:
            try:
                signed = order.signed_order
                problem = await asyncio.to_thread(self.helper.remove_checkpoints, signed)
            except (HelperRefusedError, HelperUnavailableError) as error:
                problem = str(error)
        result = wire.CheckpointsRemoved(job=order.job, problem=sanitize_text(problem))
        report(wire.NodeReport(checkpoints_removed=result))

    async def find_shim(self, world: LocalWorld) -> None:
        """Ask the helper for the shim of ranks that an earlier controller has ordered to start.

        If there is one, it is recorded.
        """
        shim = await self._find_within(world.name, _POLL_S)
        if shim is not None:
            self._note_shim(world, shim)

    def _note_shim(self, world: LocalWorld, shim: ProcessIdentity) -> None:
        world.shim = shim
        with suppress(OSError):  # the next controller asks the helper
            world.spool.claim(shim)

    async def _find_within(self, world: str, seconds: float) -> ProcessIdentity | None:
        """Wait until the helper answers; return the shim of the ranks called ``world``.

        None if they have no processes, if the helper refuses the request, or if it does not
        answer within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                return await asyncio.to_thread(self.helper.find, world)
            except HelperRefusedError:
                return None
            except HelperUnavailableError:
                if time.monotonic() >= deadline:
                    return None
            await asyncio.sleep(_POLL_S)

    # ------------------------------------------------------------------ shims

    def _accepts(self, uid: int, connections: int) -> bool:
        """Return whether a shim of user ``uid`` may connect.

        The user may have a connection for each of the user's worlds here, and a few more.

        Args:
            uid: the user id.
            connections: how many connections the user has now.
        """
        mine = sum(
            world.request.uid == uid for world in self._worlds.values() if world.request.by_helper
        )
        # A shim whose world was forgotten must be told so, and gets one of the other connections.
        return connections < mine + _MORE_CONNECTIONS

    def _on_shim(self, sent: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        pid, uid = peer_process(writer.get_extra_info("socket"))
        if sent.get("op") == "hello":
            name = sent.get("world")
            world = self._worlds.get(name) if isinstance(name, str) else None
            if world is None:
                _write(writer, {"op": "kill", "processors": [], "grace_s": 0}, {"op": "forget"})
                writer.close()  # after the reply; the shim connects again if ranks still end
                return
            if not _is_shim_of(world, pid, uid):
                if world.shim is not None:
                    raise ValueError(f"process {pid} is not the shim of {name}")
                # A shim that was just started tries again, when the helper has answered.
                writer.close()
                return
        else:
            world = next((w for w in self._worlds.values() if w.channel is writer), None)
            if world is None or not world.request.by_helper:
                return
        clean = clean_message(world, sent, pid)
        exits = clean.get("exits", [])
        new = [SpooledExit.from_record(end) for end in exits if end["rank"] not in world.saved]
        if new:
            try:
                world.spool.save_exits(new)
            except OSError as error:
                logger.error("%s: cannot save exits, trying again: %s", world.name, error)
                # The shim connects again and repeats them.
                asyncio.get_running_loop().call_later(1.0, writer.close)
                return
            world.saved |= {end.rank for end in new}
        if exits:
            _write(writer, {"op": "exits_saved", "ranks": [end["rank"] for end in exits]})
        self._callbacks.on_message(clean, writer)


def _is_shim_of(world: LocalWorld, pid: int, uid: int) -> bool:
    if not world.request.by_helper or world.request.uid != uid:
        return False
    return world.shim_unknown if world.shim is None else world.shim.pid == pid


def clean_message(world: LocalWorld, sent: dict[str, Any], pid: int) -> dict[str, Any]:
    """Return a message of a user's shim with only the fields that it may have, after checking them.

    Args:
        world: the world (set of ranks) of the shim.
        sent: the message.
        pid: the process id that the kernel names, which replaces the one in the message.

    Raises:
        ValueError, TypeError, KeyError: a value is wrong; the caller disconnects the shim.
    """
    clean: dict[str, Any] = {"op": sent["op"]}
    match sent["op"]:
        case "hello":
            fence = sent["fence"]
            clean |= {
                "world": world.name,
                "pid": pid,
                "ready": sent["ready"] is True,
                "fence": None if fence is None else _clean_fence(fence),
                "exits": _clean_exits(world, sent["exits"]),
            }
        case "fence":
            clean |= _clean_fence(sent)
        case "exits":
            clean["exits"] = _clean_exits(world, sent["exits"])
        case "ready":
            pass
        case "relay":
            packet = sent["packet"]
            if not isinstance(packet, str) or len(packet) > _MAX_PACKET or not packet.isascii():
                raise ValueError("a damaged packet")
            clean |= {"to": _number(sent["to"], 0, (1 << 32) - 1), "packet": packet}
        case other:
            raise ValueError(f"there is no message {other!r}")
    return clean


def _clean_fence(sent: Mapping[str, Any]) -> dict[str, Any]:
    pairs, sequence = sent["pairs"], _number(sent["sequence"], 0, (1 << 32) - 1)
    if not isinstance(pairs, dict) or len(pairs) > _MAX_PAIRS:
        raise ValueError("damaged pairs")
    for value in pairs.values():
        if not isinstance(value, str):
            raise TypeError("a value that is no text")
    return {"sequence": sequence, "pairs": pairs}


def _clean_exits(world: LocalWorld, records: Any) -> list[dict[str, Any]]:
    """Check the exits that a user's shim reports, and return them; raise an error if one is wrong.

    A shim's statement that a fault of this node has ended a rank is dropped.
    """
    places = dict(world.request.ranks)
    if not isinstance(records, list) or len(records) > len(places):
        raise ValueError("more exits than ranks")
    clean = []
    for record in records:
        rank = _number(record["rank"], 0, 1 << 31)
        if rank not in places:
            raise ValueError(f"rank {rank} is not one of this world")
        at = record["at"]
        is_time = isinstance(at, float) and math.isfinite(at)
        end = SpooledExit(
            rank=rank,
            processor=places[rank],
            code=_number(record["code"], -(1 << 31), (1 << 31) - 1),
            signal=_number(record["signal"], 0, 255),
            reason=sanitize_text(str(record["reason"])),
            at=min(at, time.time()) if is_time else time.time(),
            cut_off=record["cut_off"] is True and world.request.stop_after_s is not None,
            steps=read_steps(record.get("steps", [])) if rank == 0 else (),
        )
        clean.append(end.to_record())
    return clean


def _number(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is out of range")
    return value


def _write(writer: asyncio.StreamWriter, *messages: dict[str, Any]) -> None:
    writer.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

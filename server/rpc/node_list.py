"""The nodelist thread: it watches which nodes are alive, and decides which may register."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pliant.core.events import (
    Event,
    NodeLoadMeasured,
    NodeLost,
    NodeRecovered,
    NodeRegistered,
    NodeSuspected,
)
from pliant.core.model.nodes import Node, NodeState
from pliant.core.support.plural import plural
from pliant.core.values.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.protos.sanitize_text import sanitize_text
from pliant.server.execution.connections import Connections
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.registry.status_cache import MemoryUse, StatusCache
from pliant.server.rpc.node_loss_detection import Health, HeartbeatLeases
from pliant.server.support.stall_detection import CATCH_UP_S, wait_measuring_stall
from pliant.server.support.threads import start_thread

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
#: Minimum time between two checks of the leases, seconds.
SHORTEST_SLEEP_S = 0.05


def stale_server_reason(own: tuple[int, str], obeyed: tuple[int, str]) -> str | None:
    """Return why a node must not follow this server; None if it may.

    The generation is the number of a server's start. If the node has obeyed a higher one, this
    server runs on an old copy of the database. The same number with another instance id belongs to
    a server on another copy.

    Args:
        own: generation and instance id (a random number of the start) of this server.
        obeyed: generation and instance id of the last server that the node obeyed. An empty id
            means that the id is unknown.
    """
    (generation, life), (last, other) = own, obeyed
    copied = last == generation and other not in ("", life)
    if last > generation or copied:
        return (
            f"this server has generation {generation}, but the node has obeyed generation "
            f"{last}{' of another server' if copied else ''}: this server runs on an old copy of "
            "the database"
        )
    return None


class NodeList:
    """Watches the leases of all nodes in a thread, and reports nodes that are lost.

    A node is lost when its lease expires. A closed stream alone does not mean that a node is lost.
    """

    def __init__(
        self,
        core_loop: CoreLoop,
        connections: Connections,
        status: StatusCache,
        beat_interval_s: float,
        lease_s: float,
    ) -> None:
        self._core_loop, self._connections, self._status = core_loop, connections, status
        self._lease_s = lease_s
        self._leases = HeartbeatLeases(beat_interval_s, lease_s)
        self._flag = threading.Condition()
        self._stopping = False
        #: Whether the thread sleeps without a timeout, because there is no lease.
        self._sleeps_unlimited = False
        self._thread: Any = None

    def restore(self, nodes: Iterable[Node]) -> None:
        """Start a full lease for each node that was not lost before the restart."""
        for node in nodes:
            if node.state is not NodeState.LOST:
                self._leases.open(node.name, time.monotonic())

    def refusal(self, event: NodeRegistered, stale: str | None) -> str | None:
        """Return why a controller may not register; None if it may.

        Args:
            event: the registration of the controller.
            stale: the result of the function `stale_server_reason` for this registration.
        """
        if not _NAME.fullmatch(event.name):
            return f"{event.name!r} is no name for a node"
        if stale is not None:
            return stale
        host = self._status.host(event.name)
        if host is None or host.slots == event.slots:
            return None
        if any(world.live for world in event.worlds) or self._status.node_in_use(event.name):
            return (
                f"node {event.name} has {plural(host.slots, 'slot')} here, not {event.slots}, and "
                f"processes of jobs: start it with --slots {host.slots}, or end its jobs first"
            )
        return None

    def name_conflict(self, name: NodeName) -> str | None:
        """Return a refusal if another controller with this name is connected; else None."""
        with self._flag:
            silent = self._leases.silent(name, time.monotonic())
        if self._connections.node_connected(name) and not silent:
            return f"a node named {name} is connected already"
        return None

    def lose(self, node: NodeName, reason: str) -> None:
        """Report a node as lost at once, without waiting until its lease expires."""
        with self._flag:
            self._leases.lose(node)
        self._core_loop.post(NodeLost(node, reason))

    def watch(self, node: NodeName) -> None:
        """Start the heartbeat lease of a node that registered."""
        with self._flag:
            self._leases.open(node, time.monotonic())
            # A new lease ends after all others, so only a thread without a timeout must be woken.
            # Otherwise each of 1000 registrations would make it check all leases.
            if self._sleeps_unlimited:
                self._flag.notify()

    def publish_containment(self, node: NodeName, register: node_pb2.Register) -> None:
        """Publish how a node enforces each kind of limit on jobs, so that users can see it."""
        fields = register.containment.ListFields()
        texts = {field.name: sanitize_text(text) for field, text in fields}
        self._status.publish_containment(node, texts)

    def publish_checkpoint_folder(self, node: NodeName, text: str) -> None:
        """Publish, for users, whether jobs on a node can use the folder of checkpoints."""
        self._status.publish_checkpoint_folder(node, text)

    def publish_load(self, event: NodeLoadMeasured) -> None:
        """Publish the memory load that a node has measured, so that users can see it."""
        self._status.publish_load(event.name, event.load, event.interval_s)

    def beat(self, node: NodeName, beat: node_pb2.Beat) -> bool:
        """Record a heartbeat and the memory use in it.

        Return False if the node has no lease now; it must then register again.
        """
        with self._flag:
            before = self._leases.beat(node, time.monotonic())
        if before is Health.SUSPECT:
            self._core_loop.post(NodeRecovered(node))
        elif before is Health.LOST:
            # Its processes were given up. It must register again, so that both sides compare
            # their state.
            self._connections.close_node(node)
        usage = {JobId(j.job): MemoryUse(j.resident_bytes, j.major_faults) for j in beat.jobs}
        self._status.publish_usage(node, beat.idle_memory_bytes, usage)
        return before in (Health.GOOD, Health.SUSPECT)

    def note_root_helper(self, node: NodeName, has_one: bool) -> None:
        """Record whether a registering node has a root helper, which starts jobs as their users."""
        self._status.note_root_helper(node, has_one)

    def has_root_helper(self, node: NodeName) -> bool:
        """Return whether a node has a root helper, which starts each job as its user."""
        return self._status.has_root_helper(node)

    def start(self, on_fault: Callable[[str], None]) -> None:
        """Start the thread; ``on_fault`` is called with its name if an error ends the thread."""
        self._thread = start_thread("nodelist", self._run, on_fault)

    def stop(self) -> None:
        """Wake and end the thread, and wait until it has ended."""
        with self._flag:
            self._stopping = True
            self._flag.notify()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._flag:
                if self._stopping:
                    return
                pause_s = self._sleep()
                self._sleeps_unlimited = pause_s is None
                if late := wait_measuring_stall(self._flag, pause_s):
                    log.warning(
                        "this server did not run for %d s; leases and deadlines are extended", late
                    )
                    self._leases.extend(late + CATCH_UP_S, time.monotonic())
            self.check_leases()

    def check_leases(self) -> None:
        """Check all heartbeat leases once; report nodes that have become suspected or lost."""
        with self._flag:
            worsened = self._leases.update_health(time.monotonic())
        for node, health in worsened:
            self._core_loop.post(self._event(node, health))
            if health is Health.LOST:
                self._connections.close_node(node)

    def _sleep(self) -> float | None:
        deadline = self._leases.next_deadline()
        return None if deadline is None else max(SHORTEST_SLEEP_S, deadline - time.monotonic())

    def _event(self, node: NodeName, health: Health) -> Event:
        if health is Health.SUSPECT:
            return NodeSuspected(node)
        return NodeLost(node, f"nothing heard for {self._lease_s:g} s")

"""A fake of the server's node service, without a scheduler behind it."""

from __future__ import annotations

import itertools
import os
import queue
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from pliant.protos import node_pb2 as wire
from pliant.protos.address import UnixAddress, prepare_socket
from pliant.protos.hmac_handshake import begin
from pliant.protos.node_pb2_grpc import NodeServiceServicer, add_NodeServiceServicer_to_server


class Connection:
    """The current stream of one node."""

    def __init__(self, register: wire.Register) -> None:
        self.register = register
        self.orders: queue.SimpleQueue[wire.NodeOrder | None] = queue.SimpleQueue()
        self.heard = 0  # the last beat


class FakeServer(NodeServiceServicer):
    """The node service on a socket, for controllers or for a `ControllerStream` alone.

    It welcomes or refuses nodes, confirms heartbeats, completes barriers, acknowledges ends and
    sends the orders of the test. Attributes switch each of these off, and record what nodes sent.
    It does not check what nodes report, and it decides nothing: no jobs, no placement, no recovery.
    """

    def __init__(self, address_file: Path) -> None:
        self.address_file = address_file
        self.generation, self.life = 1, ""
        self.beat_interval_s = 0.2
        self.acknowledge = True
        self.confirm = True  # that beats arrive
        self.versions = (0, 0)  # protocol and oldest reader; 0: of a server without numbers
        self.silent = False  # as a process that does not know the secret and answers nothing
        self.opened = 0  # streams
        self.unproven: list[wire.NodeReport] = []  # sent to a silent server
        self.refusal = ""
        self.taken = False  # as a reason for the refusal
        self.nodes: dict[str, Connection] = {}
        self.registrations: list[wire.Register] = []
        self.beats: list[tuple[str, wire.Beat]] = []
        self.able: list[str] = []  # nodes that can start jobs, as they say
        self.ready: list[tuple[str, str]] = []  # (node, world)
        self.exits: dict[tuple[str, int], wire.RankExit] = {}
        self.exit_reports = 0
        self.reasons: list[tuple[str, str]] = []  # (world, why it ended), of all reports
        self.relayed = 0  # messages between shims
        self.dropped = 0  # the first of them, which get lost
        self.barrier_parts: dict[str, int] = {}  # by world: on how many nodes it is
        self.barriers: dict[tuple[str, int], dict[str, wire.Fence]] = {}
        #: What shows nodes, which find it in the file, that this is the server of their cluster.
        self.secret = secrets.token_hex(16)
        self._starts = itertools.count(1)
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None

    @property
    def secret_file(self) -> Path:
        """Return the file of the secret."""
        return self.address_file.parent / "node.secret"

    def start(self) -> None:
        """Listen on a new socket and say where."""
        self.secret_file.touch(mode=0o600)
        self.secret_file.write_text(self.secret)
        self._pool = ThreadPoolExecutor(max_workers=8)
        self._server = grpc.server(self._pool)
        add_NodeServiceServicer_to_server(self, self._server)
        address = UnixAddress(self.address_file.parent / f"grpc-{next(self._starts)}.sock")
        self._directory, target = prepare_socket(address)
        umask = os.umask(0o177)
        self._server.add_insecure_port(target)
        os.umask(umask)
        self._server.start()
        draft = self.address_file.with_suffix(".new")
        draft.write_text(f"{address}\n")
        draft.rename(self.address_file)

    def stop(self) -> None:
        """Close all streams."""
        for connection in self.nodes.values():
            connection.orders.put(None)
        self.nodes.clear()
        if self._server is not None and self._pool is not None:
            self._server.stop(grace=0).wait()
            self._pool.shutdown()
            os.close(self._directory)
            self._server = None

    def send(self, node: str, order: wire.NodeOrder) -> None:
        """Order something."""
        self.nodes[node].orders.put(order)

    def Connect(
        self, request_iterator: Iterator[wire.NodeReport], context: grpc.ServicerContext
    ) -> Iterator[wire.NodeOrder]:
        """Serve one node."""
        self.opened += 1
        if self.silent:
            self._listen_silently(request_iterator)
            return
        shaking = begin(context.invocation_metadata(), self.secret.encode())
        context.send_initial_metadata(shaking.metadata)
        assert shaking.verifies(next(request_iterator).proof)
        register = next(request_iterator).register
        self.registrations.append(register)
        if self.refusal:
            refused = wire.Refused(reason=self.refusal, taken=self.taken)
            if any(self.versions):
                refused.protocol = self.versions[0]
            yield wire.NodeOrder(refused=refused)
            return
        connection = Connection(register)
        yield wire.NodeOrder(
            welcome=wire.Welcome(
                generation=self.generation,
                beat_interval_s=self.beat_interval_s,
                life=self.life,
                protocol=self.versions[0],
                oldest_reader=self.versions[1],
            )
        )
        self.nodes[register.name] = connection
        reader = threading.Thread(
            target=self._read, args=(register.name, request_iterator, connection), daemon=True
        )
        reader.start()
        while (order := connection.orders.get()) is not None:
            if order.HasField("start_world"):
                order.start_world.heard = connection.heard
            yield order

    def _listen_silently(self, reports: Iterator[wire.NodeReport]) -> None:
        try:
            self.unproven.extend(reports)
        except grpc.RpcError:
            pass  # the node has ended the stream

    def _read(self, node: str, reports: Iterator[wire.NodeReport], connection: Connection) -> None:
        try:
            for report in reports:
                with self._lock:
                    self._take(node, report, connection)
        except grpc.RpcError:
            pass  # the node is gone
        connection.orders.put(None)

    def _take(self, node: str, report: wire.NodeReport, connection: Connection) -> None:
        match report.WhichOneof("body"):
            case "beat":
                self.beats.append((node, report.beat))
                self._take_beat(report.beat, connection)
            case "able":
                self.able.append(node)
            case "world_ready":
                self.ready.append((node, report.world_ready.world))
            case "fence":
                self._take_barrier(node, report.fence)
            case "relay":
                self._take_relay(node, report.relay)
            case "ranks_exited":
                self._take_exits(report.ranks_exited, connection)

    def _take_beat(self, beat: wire.Beat, connection: Connection) -> None:
        if self.confirm:
            connection.heard = beat.sequence
        if self.confirm and beat.confirm:
            heard = wire.BeatHeard(sequence=beat.sequence)
            connection.orders.put(wire.NodeOrder(beat_heard=heard))

    def _take_exits(self, exited: wire.RanksExited, connection: Connection) -> None:
        self.exit_reports += 1
        for end in exited.exits:
            self.reasons.append((exited.world, end.reason))
            self.exits.setdefault((exited.world, end.rank), end)
        if self.acknowledge:
            ranks = [end.rank for end in exited.exits]
            ack = wire.ExitAck(world=exited.world, ranks=ranks)
            connection.orders.put(wire.NodeOrder(exit_ack=ack))

    def _take_relay(self, node: str, message: wire.Relay) -> None:
        """Pass on a message in a world on two nodes."""
        self.relayed += 1
        for other in [name for name in self.nodes if name != node]:
            if self.relayed > self.dropped:
                self.send(other, wire.NodeOrder(relay=message))

    def _take_barrier(self, node: str, barrier: wire.Fence) -> None:
        parts = self.barriers.setdefault((barrier.world, barrier.sequence), {})
        parts[node] = barrier
        if len(parts) < self.barrier_parts[barrier.world]:
            return
        merged = {key: value for part in parts.values() for key, value in part.pairs.items()}
        done = wire.FenceDone(world=barrier.world, sequence=barrier.sequence, pairs=merged)
        for name in parts:
            self.send(name, wire.NodeOrder(fence_done=done))

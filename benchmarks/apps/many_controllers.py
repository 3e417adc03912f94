"""Controllers of many nodes in one process, which speak the real protocol but start no processes.

    python benchmarks/apps/many_controllers.py ADDRESS SECRET NUMBER

Each node has its own connection and stream, one slot, and sends heartbeats as often as the server
asks. SECRET is the file with the secret of the cluster. If it is a folder with ``roots.pem``, and
``NAME.key`` and ``NAME.pem`` of each node, the nodes connect over TLS.

When the server orders a node to start ranks, the node reports them as ready at once. When the
server orders it to end them, it reports them as ended. The program prints ``up`` when the server
has welcomed all nodes. When all nodes have got their order to start a job's processes (its world),
it prints ``started JOB FIRST LAST``: when the first and the last order came, on the wall clock.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from pliant.protos import node_pb2 as wire
from pliant.protos.address import dial_target
from pliant.protos.grpc_channel_options import channel_options
from pliant.protos.hmac_handshake import NODE, ClientHandshake
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME
from pliant.protos.node_pb2_grpc import NodeServiceStub

Stream = grpc.aio.StreamStreamCall[wire.NodeReport, wire.NodeOrder]

#: So many connect at a time, as nodes that are switched on one after the other.
AT_ONCE = 50
MEMORY_BYTES = 64 << 30


class Tally:
    """Prints a line when the server has accepted all nodes.

    Also prints one for each job when all its nodes have got the order to start its ranks.
    """

    def __init__(self, number: int) -> None:
        self._number, self._welcome = number, 0
        self._orders: dict[str, list[float]] = {}

    def welcomed(self) -> None:
        """Count a node that the server has accepted; print ``up`` after the last one."""
        self._welcome += 1
        if self._welcome == self._number:
            print("up", flush=True)

    def started(self, order: wire.StartWorld) -> None:
        """Count a node that got its order to start ranks of a job.

        After the last node of the job, print the times of the first and of the last such order.
        """
        times = self._orders.setdefault(order.world, [])
        times.append(time.time())
        if len(times) == order.world_size:
            del self._orders[order.world]
            print(f"started {order.job} {times[0]:.6f} {times[-1]:.6f}", flush=True)


class Node:
    """One simulated node with its connection to the server."""

    def __init__(self, name: str, tally: Tally) -> None:
        self._name, self._tally = name, tally
        self._outbox: asyncio.Queue[wire.NodeReport] = asyncio.Queue()
        self._worlds: dict[str, wire.StartWorld] = {}

    async def run(self, address: str, secret: Path, gate: asyncio.Semaphore) -> None:
        """Act as a node until the server ends the stream.

        Args:
            address: the address of the server.
            secret: the file with the secret of the cluster, or the folder with TLS certificates.
            gate: limits how many nodes register at the same time.
        """
        with dial_target(address) as target:
            await self._serve(target, secret, gate)

    async def _serve(self, target: str, secret: Path, gate: asyncio.Semaphore) -> None:
        async with self._channel(target, secret) as channel:
            async with gate:
                if secret.is_dir():  # TLS has authenticated both sides
                    stream = NodeServiceStub(channel).Connect(self._reports())
                else:
                    stream = await self._prove(channel, secret.read_bytes().strip())
                self._outbox.put_nowait(self._registration())
                orders = aiter(stream)
                first = await anext(orders)
            if first.WhichOneof("body") != "welcome":
                raise SystemExit(f"{self._name} is not welcome: {first}")
            self._tally.welcomed()
            beats = asyncio.create_task(self._beat(first.welcome.beat_interval_s))
            try:
                async for order in orders:
                    self._obey(order)
            finally:
                beats.cancel()

    def _channel(self, target: str, secret: Path) -> grpc.aio.Channel:
        if not secret.is_dir():
            return grpc.aio.insecure_channel(target, options=channel_options())
        names = ("roots.pem", f"{self._name}.key", f"{self._name}.pem")
        credentials = grpc.ssl_channel_credentials(
            *((secret / name).read_bytes() for name in names)
        )
        override = ("grpc.ssl_target_name_override", SERVER_DNS_NAME)
        return grpc.aio.secure_channel(target, credentials, options=[*channel_options(), override])

    async def _prove(self, channel: grpc.aio.Channel, secret: bytes) -> Stream:
        shaking = ClientHandshake(secret, NODE)
        stream = NodeServiceStub(channel).Connect(self._reports(), metadata=shaking.metadata)
        answer = await stream.initial_metadata()
        proof = shaking.proof([(key, value) for key, value in answer])
        self._outbox.put_nowait(wire.NodeReport(proof=proof))
        return stream

    def _registration(self) -> wire.NodeReport:
        register = wire.Register(
            name=self._name,
            cluster="main",
            slots=1,
            boot_id=self._name,
            address="127.0.0.1",
            memory_bytes=MEMORY_BYTES,
        )
        return wire.NodeReport(register=register)

    async def _reports(self) -> AsyncIterator[wire.NodeReport]:
        while True:
            yield await self._outbox.get()

    async def _beat(self, interval: float) -> None:
        for sequence in itertools.count(1):
            jobs = [
                wire.JobUsage(job=order.job, resident_bytes=1 << 30, processes=1)
                for order in self._worlds.values()
            ]
            beat = wire.Beat(sequence=sequence, idle_memory_bytes=MEMORY_BYTES // 2, jobs=jobs)
            self._outbox.put_nowait(wire.NodeReport(beat=beat))
            await asyncio.sleep(interval * random.uniform(0.9, 1.0))

    def _obey(self, order: wire.NodeOrder) -> None:
        match order.WhichOneof("body"):
            case "start_world":
                self._start(order.start_world)
            case "kill":
                for world in [w for w in self._worlds.values() if w.job == order.kill.job]:
                    self._end(world)
            case "exit_ack":
                self._worlds.pop(order.exit_ack.world, None)

    def _start(self, order: wire.StartWorld) -> None:
        self._tally.started(order)
        self._worlds[order.world] = order
        ready = wire.WorldReady(world=order.world, job=order.job, run=order.run)
        self._outbox.put_nowait(wire.NodeReport(world_ready=ready))

    def _end(self, world: wire.StartWorld) -> None:
        exits = [
            wire.RankExit(rank=each.rank, processor=each.processor, signal=15, at=time.time())
            for each in world.ranks
        ]
        report = wire.RanksExited(world=world.world, job=world.job, run=world.run, exits=exits)
        self._outbox.put_nowait(wire.NodeReport(ranks_exited=report))


async def main() -> None:
    """Act as all nodes until the server ends their streams."""
    address, secret, number = sys.argv[1:]
    tally, gate = Tally(int(number)), asyncio.Semaphore(AT_ONCE)
    nodes = [Node(f"n{each}", tally) for each in range(1, int(number) + 1)]
    await asyncio.gather(*(node.run(address, Path(secret), gate) for node in nodes))


asyncio.run(main())

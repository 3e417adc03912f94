"""Node controllers as real processes, and worlds to run on them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodekit.server import FakeServer
from pliant.nodectl.host.procfs import ProcessIdentity
from pliant.nodectl.world_folder import WorldFolder
from pliant.protos import node_pb2 as wire
from testkit import wait_until

_worlds = itertools.count(1)


@dataclass
class World:
    """An order to start a world, before it is cut into the parts of its nodes."""

    argv: Sequence[str | bytes]
    output: Path
    type: str = "mpi"
    job: int = 1
    resize: int = 0
    directory: str = "/"
    grace_s: float = 2.0
    environment: Mapping[str, str] = field(default_factory=dict)
    placement: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"n1": [0]})
    stderr: str = ""
    stdin: str = ""
    name: str = ""
    lease_s: float = 0.0
    stop_after_s: float | None = None
    truncate_before: float = 0.0
    first_rank: int | None = None
    record_load_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.name:
            self.name = f"test-{os.getpid()}-{next(_worlds)}"

    def orders(self) -> dict[str, wire.StartWorld]:
        """Return the order for each node; ranks are dense, node by node."""
        processors = [p for mine in self.placement.values() for p in mine]
        blocks = ",".join(f"({i},1,{len(p)})" for i, p in enumerate(self.placement.values()))
        environment = {**os.environ, **self.environment}
        orders = {}
        rank = itertools.count()
        for node, mine in self.placement.items():
            orders[node] = wire.StartWorld(
                world=self.name,
                job=self.job,
                run=1,
                resize=self.resize,
                type=self.type,
                world_size=len(processors),
                ranks=[wire.Placement(rank=next(rank), processor=p) for p in mine],
                process_mapping=f"(vector,{blocks})",
                spans_nodes=len(self.placement) > 1,
                argv=[a if isinstance(a, bytes) else os.fsencode(a) for a in self.argv],
                environment=[os.fsencode(f"{k}={v}") for k, v in environment.items()],
                directory=os.fsencode(self.directory),
                stdin=os.fsencode(self.stdin),
                stdout=os.fsencode(self.output),
                stderr=os.fsencode(self.stderr),
                umask=0o027,
                token=b"secret",
                application_address="unix:/nowhere/grpc.sock",
                address_file=b"/nowhere",
                node_list=b"".join(f"{n}:{len(p)}\n".encode() for n, p in self.placement.items()),
                kill_grace_s=self.grace_s,
                processors=processors,
                lease_s=self.lease_s,
                stop_after_s=self.stop_after_s,
                truncate_before=self.truncate_before,
                first_rank=self.first_rank,
                record_load_s=self.record_load_s,
            )
        return orders

    def start(self, server: FakeServer) -> str:
        """Send the orders; return the name of the world."""
        server.barrier_parts[self.name] = len(self.placement)
        for node, order in self.orders().items():
            server.send(node, wire.NodeOrder(start_world=order))
        return self.name

    def ends(self, server: FakeServer, *, timeout: float = 40.0) -> list[wire.RankExit]:
        """Wait for the ends of all ranks; return them by rank."""
        count = sum(map(len, self.placement.values()))
        keys = [(self.name, rank) for rank in range(count)]
        wait_until(lambda: all(key in server.exits for key in keys), timeout=timeout)
        return [server.exits[key] for key in keys]


class Node:
    """One controller."""

    def __init__(self, name: str, server: FakeServer, state: Path, *options: str) -> None:
        self.name, self._options = name, options
        self.server = server
        self.state = state / f"node-{name}"
        self.log = state / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def spool(self) -> Path:
        """Return where its worlds are."""
        return self.state / "spool"

    def start(self, *, wait: bool = True) -> None:
        """Start the controller; wait until it is registered."""
        before = len(self.server.registrations)
        command = [sys.executable, "-m", "pliant.nodectl", "--name", self.name, "--slots", "4"]
        command += ["--secret-file", str(self.server.secret_file)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*command, "--address-file", str(self.server.address_file), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if wait:
            wait_until(lambda: any(r.name == self.name for r in self.server.registrations[before:]))
            wait_until(lambda: self.name in self.server.nodes)

    def stop(self) -> int:
        """Stop the controller in good order."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(timeout=30)
        self.server.nodes.pop(self.name, None)
        return code

    def kill(self) -> None:
        """Kill the controller."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=30)
        self.server.nodes.pop(self.name, None)

    def end_jobs(self) -> int:
        """Have all its jobs ended while it has no controller; the exit code."""
        command = [sys.executable, "-m", "pliant.nodectl", "--name", self.name, "--end-jobs"]
        with open(self.log, "ab") as log:
            return subprocess.run(command, stdout=log, stderr=log, check=False).returncode

    def shim(self, world: World) -> ProcessIdentity:
        """Who keeps a world that was started."""
        shim = WorldFolder(self.spool / world.name).shim()
        assert shim is not None, f"{world.name} has no shim yet"
        return shim

    def worlds(self) -> list[str]:
        """Return the worlds that are not forgotten yet."""
        return sorted(path.name for path in self.spool.iterdir())

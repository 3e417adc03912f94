"""A real server process, users on its socket, and scripted controllers and applications."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import psutil

from clusterkit.uses import Uses
from pliant.protos import app_pb2, app_pb2_grpc, node_pb2, node_pb2_grpc
from pliant.protos.address import dial_target
from pliant.protos.hmac_handshake import NODE, ClientHandshake, UnprovenServerError, application
from pliant.protos.report_chunking import split
from serverkit.forked import ForkedServer, start_server
from testkit import wait_until

#: Pretended controllers do not beat; a slow machine must not make them suspect.
SLOW = {"beat_interval_s": 100.0, "lease_s": 1000.0}


class Server:
    """A process ``python -m pliant.server`` with its own folders."""

    def __init__(self, base: Path, **settings: object) -> None:
        self.state, self.run = base / "state", base / "run"
        self._config = base / "server.yaml"
        known = {"state_dir": str(self.state), "run_dir": str(self.run), **SLOW, **settings}
        self._config.write_text(json.dumps(known))
        self._log = base / "server.log"
        self.process: ForkedServer | subprocess.Popen[bytes] | None = None
        self._uses = Uses(self._processes)

    def start(self, *arguments: str) -> Server:
        (self.run / "server.address").unlink(missing_ok=True)
        self.process = self.spawn(*arguments)
        wait_until(self._ready, what="the server is ready")
        if not self._uses.now:
            self._uses.rest(jobs=0)
        return self

    def spawn(self, *arguments: str) -> ForkedServer | subprocess.Popen[bytes]:
        return start_server(["--config", str(self._config), "--debug", *arguments], self._log)

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return (self.run / "server.address").exists()

    @property
    def address(self) -> str:
        return (self.run / "server.address").read_text().strip()

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def stop(self, number: int = signal.SIGTERM) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(30)

    def at_rest(self) -> None:
        """Check that a running server without peers has not grown (invariant I10)."""
        if self._processes():
            with self.user() as user:
                jobs = len(user.do("jobs", all=True)["jobs"])
            self._uses.rest(jobs)

    def _processes(self) -> dict[str, psutil.Process]:
        if self.process is None or self.process.poll() is not None:
            return {}
        return {"server": psutil.Process(self.process.pid)}

    def user(self) -> User:
        return User(self.run / "server.sock")

    def controller(self, name: str = "n1", slots: int = 4, **fields: Any) -> Controller:
        fields.setdefault("secret", (self.state / "node.secret").read_text().strip())
        return Controller(self.address, name, slots, **fields)


class User:
    """A connection to the users' socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            self._socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        self._file = self._socket.makefile("rb")

    def raw(self, line: bytes) -> dict[str, Any]:
        self.send(line)
        return self.receive()

    def send(self, data: bytes) -> None:
        """Send part of a request, or a request whose answer `receive` returns."""
        self._socket.sendall(data)

    def receive(self) -> dict[str, Any]:
        answer = self._file.readline()
        if not answer:
            raise ConnectionError("the server closed the connection")
        result: dict[str, Any] = json.loads(answer)
        return result

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return self.raw(json.dumps({"op": op, **fields}).encode() + b"\n")

    def do(self, op: str, **fields: Any) -> dict[str, Any]:
        answer = self.ask(op, **fields)
        assert answer["ok"], answer
        return answer

    def submit(self, **job: Any) -> int:
        number: int = self.do("submit", job=job_request(**job))["id"]
        return number

    def job(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.do("jobs", ids=[number])["jobs"][0]
        return found

    def kinds(self, number: int) -> list[str]:
        return [event["kind"] for event in self.do("history", id=number)["events"]]

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> User:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def job_request(**job: Any) -> dict[str, Any]:
    return {"argv": ["true"], "cwd": "/tmp", "name": "test", "env": {"A": "1"}, **job}


class Peer:
    """A bidirectional stream. Messages that arrive are queued."""

    def __init__(self, address: str, first: Any, shaking: ClientHandshake) -> None:
        self._held = ExitStack()
        options = [("grpc.use_local_subchannel_pool", 1)]
        target = self._held.enter_context(dial_target(address))
        self._channel = grpc.insecure_channel(target, options)
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.inbox: queue.Queue[Any] = queue.Queue()
        if isinstance(first, node_pb2.NodeReport):
            stub: Any = node_pb2_grpc.NodeServiceStub(self._channel).Connect
        else:
            stub = app_pb2_grpc.AppServiceStub(self._channel).Session
        self._call = stub(self._outgoing(), timeout=60, metadata=shaking.metadata)
        try:
            proof = shaking.proof(self._call.initial_metadata())
        except UnprovenServerError:  # it ends the call, or knows another key
            proof = b"unproven"
        self._outbox.put(type(first)(proof=proof))
        self._outbox.put(first)
        self.error: grpc.RpcError | None = None
        self.ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _outgoing(self) -> Iterator[Any]:
        while (message := self._outbox.get()) is not None:
            yield from split(message) if isinstance(message, node_pb2.NodeReport) else [message]

    def _read(self) -> None:
        try:
            for message in self._call:
                self.inbox.put(message)
        except grpc.RpcError as error:
            self.error = error
        self.ended.set()

    def say(self, message: Any) -> None:
        self._outbox.put(message)

    def expect(self, body: str, timeout: float = 30.0) -> Any:
        """Return the next message, which must be of this kind."""
        message = self.inbox.get(timeout=timeout)
        assert message.WhichOneof("body") == body, message
        return getattr(message, body)

    def find(self, body: str, timeout: float = 30.0) -> Any:
        """Return the next message of this kind, skipping others."""
        while (message := self.inbox.get(timeout=timeout)).WhichOneof("body") != body:
            pass
        return getattr(message, body)

    def failure(self, timeout: float = 30.0) -> str:
        """Return why the server ended the call."""
        assert self.ended.wait(timeout)
        assert isinstance(self.error, grpc.Call)
        return str(self.error.details())

    def close(self) -> None:
        self._outbox.put(None)
        self._call.cancel()
        self._reader.join(5)
        self._channel.close()
        self._held.close()


class Controller(Peer):
    """A node controller that does what the test orders."""

    def __init__(
        self, address: str, name: str, slots: int, *, secret: str = "", **fields: Any
    ) -> None:
        register = node_pb2.Register(name=name, slots=slots, cluster="main", **fields)
        report = node_pb2.NodeReport(register=register)
        super().__init__(address, report, ClientHandshake(secret.encode(), NODE))

    def welcome(self) -> Controller:
        self.expect("welcome")
        return self

    def exit(self, start: node_pb2.StartWorld, code: int = 0) -> None:
        exits = [
            node_pb2.RankExit(rank=place.rank, processor=place.processor, code=code)
            for place in start.ranks
        ]
        report = node_pb2.RanksExited(
            world=start.world, job=start.job, run=start.run, resize=start.resize, exits=exits
        )
        self.say(node_pb2.NodeReport(ranks_exited=report))

    def barrier(self, world: str, sequence: int, pairs: dict[str, str]) -> None:
        barrier = node_pb2.Fence(world=world, sequence=sequence, pairs=pairs)
        self.say(node_pb2.NodeReport(fence=barrier))

    def ready(self, start: node_pb2.StartWorld) -> None:
        ready = node_pb2.WorldReady(
            world=start.world, job=start.job, run=start.run, resize=start.resize
        )
        self.say(node_pb2.NodeReport(world_ready=ready))

    def beat(self, **fields: Any) -> None:
        self.say(node_pb2.NodeReport(beat=node_pb2.Beat(idle_memory_bytes=1, **fields)))


class Application(Peer):
    """A coordinator that does what the test orders."""

    def __init__(self, start: node_pb2.StartWorld, **fields: Any) -> None:
        hello = app_pb2.Hello(
            job=start.job,
            run=start.run,
            epoch=start.epoch,
            role=app_pb2.ROLE_COORDINATOR,
            processors=[place.processor for place in start.ranks],
            rendezvous="127.0.0.1:9",
        )
        token = fields.pop("token", start.token)
        for name, value in fields.items():
            if name == "request":
                hello.request.CopyFrom(value)
            else:
                setattr(hello, name, value)
        report = app_pb2.AppReport(hello=hello)
        shaking = ClientHandshake(token, application(start.job, start.run))
        super().__init__(start.application_address, report, shaking)

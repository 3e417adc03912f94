"""Orders between the shims of a script, and commands, within the limits of a shim."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.shim.steps import step_requests
from pliant.nodectl.shim.steps.manager import StepManager
from pliant.nodectl.world_folder import NODES, STEP_SOCKET, StartRequest, WorldFolder
from pliant.protos.relay_server_rank import SERVER_RANK

#: The order to run a command on a node.
START = {
    "order": "start",
    "world": "7.1.s1",
    "type": "command",
    "ranks": [[0, 2]],
    "size": 1,
    "mapping": "(vector,(0,1,1))",
    "argv": ["/bin/sh", "-c", "exit 3"],
    "environment": {},
    "directory": "/",
    "umask": 0o022,
}


class Shim:
    """The step manager on one of two nodes, and what it sends to the other."""

    def __init__(self, folder: Path, first: int) -> None:
        self.loop = EventLoop()
        self.sent: list[tuple[int, dict[str, Any]]] = []
        (folder / NODES).write_text("n1:2\nn2:2\n")
        ranks = [(first, first), (first + 1, first + 1)]
        variables = {"PLIANT_PROCESSORS": "0,1,2,3"}
        request = StartRequest("7.1", 7, 1, 0, "script", 4, ranks, ["true"], variables, "/", "")
        request.mapping = "(vector,(0,2,2))"
        self.folder = folder
        self.clients: list[socket.socket] = []
        self.steps = StepManager(
            self.loop,
            WorldFolder(folder),
            request,
            lambda rank, packet: self.sent.append((rank, packet)),
        )

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.turn()
        self.steps.close()
        self.loop.close()

    def turn(self) -> None:
        """Handle what has happened, without waiting."""
        self.loop.after(0.02, self.loop.stop)
        self.loop.run()
        self.loop._running = True

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages that were sent, once each, in their order."""
        sent = {packet["number"]: packet for _, packet in self.sent if "number" in packet}
        return [sent[number]["message"] for number in sorted(sent)]

    def request(self, **request: Any) -> dict[str, Any]:
        """Request a command; return the answer."""
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.folder / STEP_SOCKET))
        line = {"op": "launch", "env": {}, "cwd": "/", "umask": 0o022, **request}
        socket.send_fds(client, [json.dumps(line).encode() + b"\n"], [0, 1, 2])
        self.clients.append(client)
        client.setblocking(False)
        for _ in range(1000):
            self.turn()
            try:
                return dict(json.loads(client.recv(1 << 16)))
            except BlockingIOError:
                continue
        raise AssertionError("no answer")


@contextmanager
def spare_descriptors(number: int) -> Iterator[None]:
    """Let this process open no more than ``number`` descriptors."""
    used = [int(name) for name in os.listdir("/proc/self/fd")]
    used = [handle for handle in used if os.path.exists(f"/proc/self/fd/{handle}")]
    limit = number
    while limit - sum(handle < limit for handle in used) < number:
        limit += 1
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("first", "sender"), [(0, 0), (0, 2), (2, 2), (2, 3)])
def test_only_the_node_of_the_script_gives_orders(
    tmp_path: Path, first: int, sender: int, capfd: pytest.CaptureFixture[str]
) -> None:
    shim = Shim(tmp_path, first)
    with spare_descriptors(0):  # a start would fail, and that would be reported
        shim.steps.receive(sender, {"number": 1, "ack": 1, "message": {"step": 1, **START}})
    shim.close()
    assert shim.messages() == []
    assert "refused an order" in capfd.readouterr().err


@pytest.mark.parametrize("spare", range(8))
def test_a_command_is_reported_as_failed_if_there_are_no_descriptors(
    tmp_path: Path, spare: int
) -> None:
    shim = Shim(tmp_path, 2)
    before = os.listdir("/proc/self/fd")
    with spare_descriptors(spare):
        shim.steps.receive(0, {"number": 1, "ack": 1, "message": {"step": 1, **START}})
    for _ in range(1000):
        if (reports := shim.messages()) and reports[-1]["report"] == "gone":
            break
        shim.turn()
    assert [report["report"] for report in shim.messages()] == ["failure", "gone"]
    assert "Too many open files" in shim.messages()[0]["reason"]
    assert os.listdir("/proc/self/fd") == before
    shim.close()


def test_commands_on_a_node_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_requests, "MAX_COMMANDS", 2)
    monkeypatch.chdir(tmp_path)
    shim = Shim(Path(), 0)
    answers = [shim.request(hosts=["n2"], command="sleep 600") for _ in range(3)]
    assert [answer["op"] for answer in answers] == ["started", "started", "refused"]
    assert "2 commands run on n2 already" in answers[2]["reason"]
    shim.close()


def test_the_server_sets_sizes_of_steps(tmp_path: Path) -> None:
    shim = Shim(tmp_path, 0)
    shim.steps.receive(SERVER_RANK, {"ack": 0, "request": 5, "step": 1, "size": 2})
    ((rank, answer),) = shim.sent
    assert (rank, answer["request"]) == (SERVER_RANK, 5)
    assert "step 1 does not run" in answer["reason"]
    shim.close()

"""The steps of a script: requests, their processors, and their ranks on all nodes of the job.

The shim of the script listens on a socket in the folder of its world. A client sends one request,
together with its own standard input, output and error, which the ranks on this node use directly.
Then it sends signals and gets one answer. Its disconnection ends the step.

``client -> shim``: ``run`` or ``launch`` (with three descriptors), ``signal``.
``shim -> client``: ``started``, ``output`` (of ranks on other nodes), ``ended`` or ``refused``.

A client may also request ``launch`` instead of ``run``: a shell command on one node, which uses no
processor. The launchers of other MPI libraries start their daemons in this way. A daemon that
leaves its command, because it makes itself a session of its own, runs until the job ends.

Each message is a JSON object in one line. Steps wait for free processors in the order of their
requests. They end with the script, because each shim ends all processes below itself then.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pliant.nodectl.host.shared_memory import node_of
from pliant.nodectl.host.stderr_log import write_line
from pliant.nodectl.shim.event_loop import EventLoop, LineSplitter, SocketChannel
from pliant.nodectl.shim.non_pmi_mpi import library_without_pmi
from pliant.nodectl.shim.steps.launch_variables import agent_path, launch_variables
from pliant.nodectl.shim.steps.local_ranks import COMMAND, LocalRanks
from pliant.nodectl.shim.steps.remote_ranks import RemoteRanks, RemoteStep, place_on
from pliant.nodectl.shim.steps.request_socket import RequestSocket
from pliant.nodectl.shim.steps.shim_messenger import ShimMessenger
from pliant.nodectl.shim.steps.step import NodeEvents, Step
from pliant.nodectl.step_record import MAX_STEPS, StepRecord
from pliant.nodectl.world_folder import NOT_USABLE, StartRequest, WorldFolder

#: Variables of the script that its steps do not get.
_NOT_INHERITED = ("PLIANT_STEP_SOCKET", "PLIANT_HOST_FILE")

#: Longest arguments and environment of a step together; other nodes get them in one message.
_MAX_PROGRAM = 1 << 19

#: Commands that may run on a node at once. Each needs descriptors of its shim, which end at 1024.
MAX_COMMANDS = 64

#: Bytes of output that may wait for a client that does not read.
_MAX_OUTPUT_BACKLOG = 1 << 20


class StepManager:
    """Runs the steps of a script: programs that it starts on processors of its own job."""

    def __init__(
        self,
        loop: EventLoop,
        spool: WorldFolder,
        request: StartRequest,
        send: Callable[[int, dict[str, Any]], None],
    ) -> None:
        """Listen for requests if the script runs on this node.

        Args:
            loop: the event loop of the shim.
            spool: the folder of the world, which gets the socket.
            request: the request to start the world.
            send: sends a packet to the shim of another node, see `Relay`.
        """
        self._loop, self._spool, self._request = loop, spool, request
        self._first = request.ranks[0][0]
        self._relay = ShimMessenger(loop, send, self._on_relayed, self._on_room)
        self._socket = RequestSocket(loop, spool, self._on_request) if self._first == 0 else None
        listed = request.environment.get("PLIANT_PROCESSORS", "")
        #: The processors of the job by rank of its world.
        self._processors = [int(number) for number in listed.split(",") if number]
        #: Ranks of the world whose processors no step uses.
        self._free = list(range(len(self._processors)))
        self._waiting: list[Step] = []
        self._running: dict[int, Step] = {}
        #: Steps of another node's script, by the rank of that node and their number.
        self._remote: dict[tuple[int, int], RemoteStep] = {}
        self._count = 0
        self._ended: list[StepRecord] = []

    def launch_variables(self) -> dict[str, str]:
        """Return the variables with which MPI launchers in the script reach all nodes."""
        agent = agent_path()
        if not agent or self._socket is None or len(self._addresses()) < 2:
            return {}
        return launch_variables(self._request.environment, agent)

    def reap(self, pid: int, status: int) -> None:
        """Handle the end of a child of this process, which may be a rank of a step."""
        for step in self._running.values():
            if step.local is not None and step.local.reap(pid, status):
                return
        any(remote.reap(pid, status) for remote in list(self._remote.values()))

    def receive(self, rank: int, packet: dict[str, Any]) -> None:
        """Handle a packet from the shim of another node."""
        self._relay.receive(rank, packet)

    def records(self) -> tuple[StepRecord, ...]:
        """Return what the accounting stores about the first steps of the script.

        Called at the end of the script, with which steps that still run end.
        """
        now = time.time()
        running = (each.record(now) for each in self._running.values() if _is_counted(each))
        return tuple([*self._ended, *running][:MAX_STEPS])

    def close(self) -> None:
        """Stop listening for requests; called when all processes of steps have ended."""
        if self._socket is not None:
            self._socket.close()
        self._relay.close()
        for step in [*self._waiting, *self._running.values()]:
            step.close_stdio()
            if step.client is not None:
                step.client.close()

    # ------------------------------------------------------------------ requests

    def _on_request(self, sent: dict[str, Any], stdio: list[int]) -> Callable[..., None]:
        """Read a client's request, and return the function that takes over its connection."""
        self._count += 1
        step = Step(self._count, self._request, stdio, self._loop, self._on_step_ended)
        if sent["op"] == "launch":
            return partial(self._on_client, step, self._read_launch(step, sent))
        return partial(self._on_client, step, self._read(step, sent))

    def _on_client(self, step: Step, reason: str, client: socket.socket) -> None:
        step.client = SocketChannel(
            self._loop,
            client,
            LineSplitter(partial(self._on_message, step)),
            partial(self._on_client_gone, step),
        )
        if reason:
            step.tell(op="refused", reason=reason)
            step.close_stdio()
            return
        if step.request.type == COMMAND:
            self._run(step, self._place_command(step))
            return
        self._waiting.append(step)
        self._start_waiting()

    def _read(self, step: Step, sent: dict[str, Any]) -> str:
        """Copy the values of a request into a step; return why it is refused, else empty."""
        ours, most = self._request, len(self._processors)
        argv = [str(word) for word in sent["argv"]]
        size = int(sent["size"]) or most
        if not argv or len(step.stdio) != 3:
            return "the request is incomplete"
        if size > most:
            return f"-n {size} is more than the {most} processors of job {ours.job}"
        if reason := self._set_program(step, "mpi", argv, sent):
            return reason
        step.request.size = size
        step.request.environment["PLIANT_STEP"] = str(step.number)
        if size > 1 and (library := library_without_pmi(step.request)) is not None:
            return f"program {argv[0]} is linked with {library}: start it with its own mpiexec"
        return ""

    def _read_launch(self, step: Step, sent: dict[str, Any]) -> str:
        """Copy the values of a request for a command; return why it is refused, else empty."""
        hosts = [str(host) for host in sent["hosts"]]
        addresses = self._addresses()
        node = next((addresses[host] for host in hosts if host in addresses), None)
        if len(step.stdio) != 3 or not hosts:
            return "the request is incomplete"
        if node is None:
            known = ", ".join(addresses) or "unknown, because several of them have one address"
            return f"job {self._request.job} has no host {hosts[0]}; its hosts are {known}"
        step.places = [self._leader(node)]
        alike = [s for s in self._running.values() if s.request.type == COMMAND]
        if sum(other.places == step.places for other in alike) >= MAX_COMMANDS:
            return f"{MAX_COMMANDS} commands run on {hosts[0]} already; wait until one has ended"
        argv = ["/bin/sh", "-c", str(sent["command"])]
        return self._set_program(step, COMMAND, argv, sent)

    def _set_program(self, step: Step, kind: str, argv: list[str], sent: dict[str, Any]) -> str:
        """Copy the program of a request into a step; return why it is refused, else empty."""
        environment = {str(name): str(value) for name, value in sent["env"].items()}
        for name in _NOT_INHERITED:
            environment.pop(name, None)
        length = sum(map(len, [*argv, *environment, *environment.values()]))
        if length > _MAX_PROGRAM:
            return f"arguments and environment have {length} bytes, the limit is {_MAX_PROGRAM}"
        step.request = replace(
            self._request,
            world=f"{self._request.world}.s{step.number}",
            type=kind,
            argv=argv,
            environment=environment,
            directory=str(sent["cwd"]),
            umask=int(sent["umask"]),
            size=1,
        )
        return ""

    def _addresses(self) -> dict[str, int]:
        """Return the job's nodes by address; empty if several of them have one address."""
        lines = self._spool.nodes.read_text().split()
        nodes = {node_of(self._request.mapping, rank) for rank in range(len(self._processors))}
        if len(lines) != len(nodes):
            return {}
        return {line.rpartition(":")[0]: node for node, line in enumerate(lines)}

    def _on_message(self, step: Step, line: bytes) -> None:
        try:
            sent = json.loads(line)
            number = signal.Signals(int(sent["number"])) if sent["op"] == "signal" else None
        except (ValueError, TypeError, KeyError):
            return  # a client that sends something else harms only itself
        if number is None:
            return
        if step in self._waiting:
            self._on_client_gone(step)
            step.tell(op="ended", code=0, signal=int(number), reason="it had not started")
            return
        for part in step.parts.values():
            part.signal(number)

    def _on_client_gone(self, step: Step) -> None:
        if step in self._waiting:
            self._waiting.remove(step)
            step.close_stdio()
        else:
            step.end()

    # ------------------------------------------------------------------ start and end

    def _start_waiting(self) -> None:
        """Start steps in the order of their requests, as long as enough processors are free."""
        while self._waiting and self._waiting[0].request.size <= len(self._free):
            self._start(self._waiting.pop(0))

    def _start(self, step: Step) -> None:
        size, ours = step.request.size, self._request
        step.places, self._free = self._free[:size], self._free[size:]
        by_node: dict[int, list[tuple[int, int]]] = {}
        nodes = [node_of(ours.mapping, place) for place in step.places]
        for rank, (node, place) in enumerate(zip(nodes, step.places, strict=True)):
            by_node.setdefault(node, []).append((rank, self._processors[place]))
        processors = [self._processors[place] for place in step.places]
        step.started = time.time()
        step.request.environment["PLIANT_PROCESSORS"] = ",".join(map(str, processors))
        self._run(step, by_node)

    def _run(self, step: Step, by_node: dict[int, list[tuple[int, int]]]) -> None:
        """Start the ranks of a step, which are given as (rank, processor) for each node."""
        ours = self._request
        step.request.mapping = _mapping([len(ranks) for ranks in by_node.values()])
        self._running[step.number] = step
        here = node_of(ours.mapping, self._first)
        for node in by_node:  # all are known before one of them reports
            step.expected.add(node)
        for node, ranks in by_node.items():
            if node == here:
                request = place_on(step.request, ours, ranks)
                source, output, error = step.stdio
                stdio = (source, output, error)
                events = step.events_of(node)
                try:
                    local = LocalRanks(self._loop, request, stdio, events)
                except OSError as failure:
                    self._loop.after(0, partial(_end_unstarted, events, failure))
                else:
                    step.local = step.parts[node] = local
            else:
                request = replace(step.request, ranks=ranks)
                send = partial(self._order, self._leader(node), step.number)
                step.parts[node] = RemoteRanks(send, request)
        step.close_stdio()
        step.tell(op="started", step=step.number)
        if step.is_ending:  # a rank failed before the others were ordered
            step.end(again=True)

    def _place_command(self, step: Step) -> dict[int, list[tuple[int, int]]]:
        (place,) = step.places
        return {node_of(self._request.mapping, place): [(0, self._processors[place])]}

    def _leader(self, node: int) -> int:
        """Return the lowest rank on a node; packets address a shim by this rank."""
        mapping = self._request.mapping
        return next(r for r in range(len(self._processors)) if node_of(mapping, r) == node)

    def _on_step_ended(self, step: Step) -> None:
        del self._running[step.number]
        if _is_counted(step):
            self._free = sorted([*self._free, *step.places])
            if len(self._ended) < MAX_STEPS:
                self._ended.append(step.record(time.time()))
        self._start_waiting()

    # ------------------------------------------------------------------ other nodes

    def _order(self, rank: int, number: int, order: dict[str, Any]) -> None:
        self._relay.send(rank, {"step": number, **order})

    def _on_relayed(self, rank: int, message: dict[str, Any]) -> bool:
        """Handle a message of another shim of this world; return False to get it again later."""
        number = int(message["step"])
        if "order" in message:
            # Only the node with rank 0 runs the script and gives orders. Packets pass through
            # controllers, which the root helper does not trust to start programs.
            if rank == 0 and self._first != 0:
                self._carry_out(rank, number, message)
            else:
                write_line(f"refused an order for a step from rank {rank}")
            return True
        step = self._running.get(number)
        if step is None:
            return True
        if message["report"] == "output" and step.backlog > _MAX_OUTPUT_BACKLOG:
            return False
        events = step.events_of(node_of(self._request.mapping, rank))
        match message["report"]:
            case "barrier":
                events.on_barrier(int(message["sequence"]), message["pairs"])
            case "failure":
                events.on_failure(message["code"], message["signal"], str(message["reason"]))
            case "output":
                step.tell(op="output", kind=message["kind"], data=message["data"])
            case "gone":
                events.on_gone()
        return True

    def _carry_out(self, rank: int, number: int, order: dict[str, Any]) -> None:
        key = rank, number
        if order["order"] != "start":
            if (known := self._remote.get(key)) is not None:
                known.carry_out(order)
            return

        def send(report: dict[str, Any]) -> None:
            self._relay.send(rank, {"step": number, **report})

        try:
            self._remote[key] = RemoteStep(
                self._loop,
                self._request,
                order,
                send,
                lambda: self._relay.has_room(rank),
                partial(self._forget, key),
            )
        except OSError as error:
            reason = f"cannot start: {error.strerror}"
            send({"report": "failure", "code": NOT_USABLE, "signal": 0, "reason": reason})
            send({"report": "gone"})

    def _forget(self, key: tuple[int, int]) -> None:
        del self._remote[key]

    def _on_room(self) -> None:
        for step in list(self._remote.values()):
            step.resume()


def _is_counted(step: Step) -> bool:
    """Return whether a step has processors of the job, unlike the command of a launcher."""
    return step.request.type != COMMAND


def _end_unstarted(events: NodeEvents, error: OSError) -> None:
    """Report that no rank of a step could be started on this node."""
    events.on_failure(NOT_USABLE, 0, f"cannot start: {error.strerror}")
    events.on_gone()


def _mapping(counts: list[int]) -> str:
    """Return the PMI process mapping for nodes with ``counts`` ranks each, in rank order."""
    blocks = ",".join(f"({node},1,{ranks})" for node, ranks in enumerate(counts))
    return f"(vector,{blocks})"

"""The steps of a script: requests, their processors, and their ranks on all nodes of the job.

The shim of the script listens on a socket in the folder of its world. A client sends one request,
together with its own standard input, output and error, which the ranks on this node use directly.
Then it sends signals and gets one answer. Its disconnection ends the step.

``client -> shim``: ``run`` or ``launch`` (with three descriptors), ``signal``, ``resize``.
``shim -> client``: ``started``, ``output`` (of ranks on other nodes), ``ended``, ``resizing`` or
``refused``.

A request ``run`` with several sizes starts a malleable step, which `resizer` resizes while it runs.

A client may also request ``launch`` instead of ``run``: a shell command on one node, which uses no
processor. The launchers of other MPI libraries start their daemons in this way. A daemon that
leaves its command, because it makes itself a session of its own, runs until the job ends.

Each message is a JSON object in one line. Steps wait for free processors in the order of their
requests. They end with the script, because each shim ends all processes below itself then.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pliant.nodectl.host.log_to_stderr import write_line
from pliant.nodectl.host.shared_memory import node_of
from pliant.nodectl.shim.event_loop import EventLoop, LineSplitter, SocketChannel
from pliant.nodectl.shim.steps.launch_variables import agent_path, launch_variables
from pliant.nodectl.shim.steps.local_ranks import COMMAND, LocalRanks
from pliant.nodectl.shim.steps.remote_ranks import RemoteRanks, RemoteStep, place_on
from pliant.nodectl.shim.steps.request_socket import RequestSocket
from pliant.nodectl.shim.steps.resizer import StepResizer
from pliant.nodectl.shim.steps.shim_messenger import ShimMessenger
from pliant.nodectl.shim.steps.size_policy import next_sizes
from pliant.nodectl.shim.steps.step import Step
from pliant.nodectl.shim.steps.step_mpi_world import NodeEvents, StepWorld
from pliant.nodectl.shim.steps.step_requests import StepRequests, leader
from pliant.nodectl.step_record import MAX_STEPS, StepRecord
from pliant.nodectl.world_folder import MALLEABLE_STEP, NOT_USABLE, StartRequest, WorldFolder
from pliant.protos.relay_server_rank import SERVER_RANK

#: Bytes of output that may wait for a client that does not read.
_MAX_OUTPUT_BACKLOG = 1 << 20


class StepManager:
    """Runs the steps of a script, which are programs on processors of the script's job."""

    def __init__(
        self,
        loop: EventLoop,
        spool: WorldFolder,
        request: StartRequest,
        send: Callable[[int, dict[str, Any]], None],
    ) -> None:
        """Listen for requests of programs to start, if the job's script runs on this node.

        Args:
            loop: the event loop of the shim.
            spool: the folder of the script's ranks, which gets the socket.
            request: the request to start the script.
            send: sends a packet to the shim of another node, which is named by a rank there.
        """
        self._loop, self._spool, self._request, self._send = loop, spool, request, send
        self._first = request.ranks[0][0]
        self._relay = ShimMessenger(loop, send, self._on_relayed, self._on_room)
        self._socket = RequestSocket(loop, spool, self._on_request) if self._first == 0 else None
        listed = request.environment.get("PLIANT_PROCESSORS", "")
        #: The processors of the job by rank of its world.
        self._processors = [int(number) for number in listed.split(",") if number]
        self._requests = StepRequests(spool, request, len(self._processors))
        #: Ranks of the world whose processors no step uses.
        self._free = list(range(len(self._processors)))
        self._waiting: list[Step] = []
        self._running: dict[int, Step] = {}
        #: Worlds of steps of another node's script, by the rank of that node, step and resize.
        self._remote: dict[tuple[int, int, int], RemoteStep] = {}
        self._count = 0
        self._ended: list[StepRecord] = []

    def launch_variables(self) -> dict[str, str]:
        """Return the variables that make MPI launchers in the script use all nodes of the job."""
        agent = agent_path()
        if not agent or self._socket is None or len(self._requests.addresses()) < 2:
            return {}
        return launch_variables(self._request.environment, agent)

    def reap(self, pid: int, status: int) -> None:
        """Handle the end of a child of this process, which may be a rank of a step."""
        worlds = [world for step in self._running.values() for world in step.worlds.values()]
        for world in worlds:
            if world.local is not None and world.local.reap(pid, status):
                return
        any(remote.reap(pid, status) for remote in list(self._remote.values()))

    def receive(self, rank: int, packet: dict[str, Any]) -> None:
        """Handle a packet from the shim of another node, or from the server.

        Args:
            rank: a rank of the sender's node, or `SERVER_RANK`.
            packet: the packet.
        """
        if rank == SERVER_RANK:
            reason = self._set_size(int(packet["step"]), int(packet["size"]))
            self._send(rank, {"request": packet["request"], "reason": reason})
            self._resize_steps()
            return
        self._relay.receive(rank, packet)

    def records(self) -> tuple[StepRecord, ...]:
        """Return the accounting records of the steps, at most ``MAX_STEPS``.

        This is called at the end of the script. Steps that still run end with it.
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
        """Read a client's request; return the function that carries it out for a connection."""
        if sent["op"] == "resize":
            for handle in stdio:
                os.close(handle)
            return partial(self._on_resize, int(sent["step"]), int(sent["size"]))
        self._count += 1
        step = Step(self._count, self._request, stdio, self._loop, self._on_step_ended)
        if sent["op"] == "launch":
            reason = self._requests.read_launch(step, sent, self._running.values())
            return partial(self._on_client, step, reason)
        reason = self._requests.read_run(step, sent)
        if not reason and step.request.type == MALLEABLE_STEP:
            processor_of = self._processors.__getitem__
            step.resizer = StepResizer(self._loop, step, step.sizes, processor_of, self)
        return partial(self._on_client, step, reason)

    def _on_client(self, step: Step, reason: str, client: socket.socket) -> None:
        step.client = SocketChannel(
            self._loop,
            client,
            LineSplitter(partial(self._on_message, step)),
            partial(self._on_client_gone, step),
        )
        if reason:
            step.send_to_client(op="refused", reason=reason)
            step.close_stdio()
            return
        if step.request.type == COMMAND:
            self._start_world(step, 0, step.places)
            return
        self._waiting.append(step)
        self._start_waiting()

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
            step.send_to_client(op="ended", code=0, signal=int(number), reason="it had not started")
            return
        step.signal(number)

    def _on_client_gone(self, step: Step) -> None:
        if step in self._waiting:
            self._waiting.remove(step)
            step.close_stdio()
        else:
            step.end()

    # ------------------------------------------------------------------ start and end

    def _start_waiting(self) -> None:
        """Start waiting steps, the first request first, until one finds too few free processors."""
        while self._waiting:
            size = self._waiting[0].sizes.largest_at_most(len(self._free))
            if not size:
                break
            self._start(self._waiting.pop(0), size)
        self._resize_steps()

    def _start(self, step: Step, size: int) -> None:
        step.places, self._free = self._free[:size], self._free[size:]
        step.started = time.time()
        if step.resizer is not None:
            step.resizer.start()
        self._start_world(step, 0, step.places)

    def _start_world(self, step: Step, resize: int, places: list[int]) -> None:
        """Start a rank of a step on each of the given processors.

        Args:
            step: the step.
            resize: the number of the resize for which the ranks are started; 0 for the start of the
                step.
            places: the ranks of the script's world whose processors are used.
        """
        ours = self._request
        world = step.worlds[resize] = StepWorld(resize, list(places), step)
        by_node: dict[int, list[tuple[int, int]]] = {}
        for rank, place in enumerate(places):
            ranks = by_node.setdefault(node_of(ours.mapping, place), [])
            ranks.append((rank, self._processors[place]))
        request = replace(step.request, size=len(places))
        request.mapping = _mapping([len(ranks) for ranks in by_node.values()])
        if _is_counted(step):
            processors = ",".join(str(self._processors[place]) for place in places)
            request.environment = {**request.environment, "PLIANT_PROCESSORS": processors}
        if resize:
            request.world += f".r{resize}"
            request.environment |= {"PLIANT_ROLE": "join", "PLIANT_RESIZE": str(resize)}
        self._running[step.number] = step
        here = node_of(ours.mapping, self._first)
        world.expected.update(by_node)  # all are known before one of them reports
        for node, ranks in by_node.items():
            events = NodeEvents(world, node)
            if node == here:
                try:
                    source, output, error = step.stdio
                    stdio = (-1 if resize else source, output, error)
                    local = LocalRanks(self._loop, place_on(request, ours, ranks), stdio, events)
                except OSError as failure:
                    self._loop.after(0, partial(_end_unstarted, events, failure))
                else:
                    world.local = world.parts[node] = local
            else:
                send = partial(self._order, leader(ours, node), step.number, resize)
                world.parts[node] = RemoteRanks(send, replace(request, ranks=ranks))
        if step.resizer is None:  # ranks that join later write to the same outputs
            step.close_stdio()
        if not resize:
            step.send_to_client(op="started", step=step.number)
        if world.is_ending:  # a rank failed before the others were ordered
            world.end(again=True)

    # ------------------------------------------------------------------ malleable steps

    def start_joining(self, number: int, resize: int, places: list[int]) -> None:
        """Start the ranks with which step ``number`` grows in resize ``resize``.

        Args:
            number: the number of the step.
            resize: the number of the resize.
            places: the ranks of the script's world whose processors the new ranks use.
        """
        self._start_world(self._running[number], resize, places)

    def free(self, places: list[int]) -> None:
        """Mark processors as free after a step has released them; then start waiting steps.

        Args:
            places: the ranks of the script's world that have these processors.
        """
        self._free = sorted([*self._free, *places])
        self._start_waiting()

    def update(self) -> None:
        """Offer new sizes to malleable steps, if waiting steps or free processors allow it."""
        self._resize_steps()

    def _resize_steps(self) -> None:
        """Offer other sizes to malleable steps.

        They shrink if a step waits for processors, and grow into free processors if none waits.
        """
        resizers = {
            number: step.resizer
            for number, step in self._running.items()
            if step.resizer is not None
        }
        states = [state for each in resizers.values() if (state := each.state()) is not None]
        missing = 0
        if self._waiting:
            coming = len(self._free) + sum(each.releasing for each in resizers.values())
            missing = max(0, self._waiting[0].sizes.min - coming)
        free = 0 if self._waiting else len(self._free)
        for number, size in next_sizes(states, free, missing).items():
            count = max(0, size - len(self._running[number].places))
            joining, self._free = self._free[:count], self._free[count:]
            resizers[number].offer(size, joining)

    def _on_resize(self, number: int, size: int, client: socket.socket) -> None:
        """Set the size of a malleable step for a client, and answer whether this is possible.

        Args:
            number: the number of the step.
            size: the number of ranks; 0 to let the step grow and shrink again.
            client: the connection to the client.
        """
        channel = SocketChannel(self._loop, client, LineSplitter(lambda _: None))
        reason = self._set_size(number, size)
        answer = {"op": "refused", "reason": reason} if reason else {"op": "resizing"}
        channel.send(json.dumps(answer).encode() + b"\n")
        self._resize_steps()

    def _set_size(self, number: int, size: int) -> str:
        """Set the number of ranks of a running step; 0 lets it grow and shrink again.

        Returns:
            Why this is refused; empty if it is done.
        """
        step = self._running.get(number)
        if step is None or not _is_counted(step):
            counted = [str(each.number) for each in self._running.values() if _is_counted(each)]
            running = ", ".join(counted) or "none"
            return f"step {number} does not run; running steps: {running}"
        if step.resizer is None:
            return f"step {number} is rigid: start it with --size A-B"
        return step.resizer.fix(size)

    def _on_step_ended(self, step: Step) -> None:
        del self._running[step.number]
        step.close_stdio()
        if _is_counted(step):
            if len(self._ended) < MAX_STEPS:
                self._ended.append(step.record(time.time()))
            self.free(step.close_resizer())

    # ------------------------------------------------------------------ other nodes

    def _order(self, rank: int, number: int, resize: int, order: dict[str, Any]) -> None:
        self._relay.send(rank, {"step": number, "resize": resize, **order})

    def _on_relayed(self, rank: int, message: dict[str, Any]) -> bool:
        """Handle a message about a step's ranks from this job's shim on another node.

        Args:
            rank: the lowest rank of the script's world on that node.
            message: an order, if the script runs there; otherwise a report.

        Returns:
            False if it cannot be handled yet. The caller then passes it on again later.
        """
        number, resize = int(message["step"]), int(message.get("resize", 0))
        if "order" in message:
            # Only the node with rank 0 runs the script and gives orders. Packets pass through
            # controllers, which the root helper does not trust to start programs.
            if rank == 0 and self._first != 0:
                self._carry_out((rank, number, resize), message)
            else:
                write_line(f"refused an order for a step from rank {rank}")
            return True
        step = self._running.get(number)
        world = step.worlds.get(resize) if step is not None else None
        if step is None or world is None:
            return True
        if message["report"] == "output" and step.backlog > _MAX_OUTPUT_BACKLOG:
            return False
        events = NodeEvents(world, node_of(self._request.mapping, rank))
        match message["report"]:
            case "barrier":
                events.on_barrier(int(message["sequence"]), message["pairs"])
            case "failure":
                events.on_failure(message["code"], message["signal"], str(message["reason"]))
            case "output":
                step.send_to_client(op="output", kind=message["kind"], data=message["data"])
            case "control":
                events.on_control(message["message"])
            case "exit":
                events.on_exit(int(message["rank"]))
            case "gone":
                events.on_ranks_ended()
        return True

    def _carry_out(self, key: tuple[int, int, int], order: dict[str, Any]) -> None:
        rank, number, resize = key
        if order["order"] != "start":
            if (known := self._remote.get(key)) is not None:
                known.carry_out(order)
            return

        def send(report: dict[str, Any]) -> None:
            self._relay.send(rank, {"step": number, "resize": resize, **report})

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

    def _forget(self, key: tuple[int, int, int]) -> None:
        del self._remote[key]

    def _on_room(self) -> None:
        for step in list(self._remote.values()):
            step.resume()


def _is_counted(step: Step) -> bool:
    """Return whether a step uses processors of the job.

    False for a command with which the launcher of an MPI library starts its daemon on a node.
    """
    return step.request.type != COMMAND


def _end_unstarted(events: NodeEvents, error: OSError) -> None:
    """Report that a step's ranks on this node have failed and ended: none could be started."""
    events.on_failure(NOT_USABLE, 0, f"cannot start: {error.strerror}")
    events.on_ranks_ended()


def _mapping(counts: list[int]) -> str:
    """Return the PMI process mapping for nodes with ``counts`` ranks each, in rank order."""
    blocks = ",".join(f"({node},1,{ranks})" for node, ranks in enumerate(counts))
    return f"(vector,{blocks})"

"""The ranks of a step on a node other than that of the script.

The manager of the steps sends orders to the shim there, and gets reports:

``order``:  ``start``, ``signal``, ``end``, ``release``, ``control``.
``report``: ``barrier``, ``failure``, ``output``, ``control``, ``exit``, ``gone``.

Each order and each report has the number of the step and, as ``resize``, of its world.
"""

from __future__ import annotations

import base64
import os
import selectors
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.shim.steps.local_ranks import COMMAND, LocalRanks
from pliant.nodectl.world_folder import StartRequest

#: Bytes of output in one message.
_CHUNK = 1 << 14

#: Sends a report to the manager.
Report = Callable[[dict[str, Any]], None]


class RemoteRanks:
    """The ranks of a step on another node, as the step manager on the script's node sees them."""

    def __init__(self, send: Callable[[dict[str, Any]], None], request: StartRequest) -> None:
        """Send the order to start the requested ranks to the shim of the other node.

        Args:
            send: sends an order to that shim.
            request: the ranks, with the processors that they have on that node.
        """
        self._send = send
        self._ranks = {rank for rank, _ in request.ranks}
        send(
            {
                "order": "start",
                "world": request.world,
                "type": request.type,
                "ranks": request.ranks,
                "size": request.size,
                "mapping": request.mapping,
                "argv": request.argv,
                "environment": request.environment,
                "directory": request.directory,
                "umask": request.umask,
            }
        )

    def signal(self, number: int) -> None:
        """Order the ranks' node to send them signal ``number``."""
        self._send({"order": "signal", "number": number})

    def end(self) -> None:
        """Order the ranks' node to send SIGTERM, and SIGKILL after the grace time."""
        self._send({"order": "end"})

    def release(self, pairs: Mapping[str, str]) -> None:
        """Order the node to release its ranks from a barrier.

        Args:
            pairs: the key-value pairs that the ranks of all nodes have put.
        """
        self._send({"order": "release", "pairs": dict(pairs)})

    def control(self, rank: int, message: Mapping[str, Any]) -> None:
        """Send a message to a rank through its shim; do nothing if the rank is not on that node."""
        if rank in self._ranks:
            self._send({"order": "control", "rank": rank, "message": dict(message)})


class RemoteStep:
    """The ranks that a step has on this node, while the step manager runs on another node.

    A step is a program that the script of a job has started.
    """

    def __init__(
        self,
        loop: EventLoop,
        world: StartRequest,
        order: dict[str, Any],
        report: Report,
        has_room: Callable[[], bool],
        on_finished: Callable[[], None],
    ) -> None:
        """Start the ranks that the manager's order names.

        Args:
            loop: the event loop of the shim.
            world: the request that reserved the processors of the script's job on this node.
            order: the manager's order to start the ranks.
            report: sends a report to the manager.
            has_room: returns whether output may be sent to the manager now.
            on_finished: called when all ranks have ended and all output was sent.

        Raises:
            OSError: the ranks cannot be started, because there are no more descriptors.
        """
        self._loop, self._report, self._has_room = loop, report, has_room
        self._on_finished = on_finished
        self._pipes: dict[int, int] = {}  # the kind of output by descriptor
        self._paused: set[int] = set()
        self._ranks_are_gone = False
        pipes: list[tuple[int, int]] = []
        try:
            request = _local_request(world, order)
            pipes += [os.pipe2(os.O_CLOEXEC)]
            pipes += [os.pipe2(os.O_CLOEXEC)]
            (output, output_end), (error, error_end) = pipes
            self._ranks = LocalRanks(loop, request, (-1, output_end, error_end), self)
        except OSError:
            for reader, _ in pipes:
                os.close(reader)
            raise
        finally:
            for _, writer in pipes:
                os.close(writer)
        for kind, reader in ((1, output), (2, error)):
            os.set_blocking(reader, False)
            self._pipes[reader] = kind
            loop.selector.register(reader, selectors.EVENT_READ, partial(self._read, reader))

    def carry_out(self, order: dict[str, Any]) -> None:
        """Carry out the manager's order, such as ``signal`` or ``end``, on the started ranks."""
        match order["order"]:
            case "signal":
                self._ranks.signal(int(order["number"]))
            case "end":
                self._ranks.end()
            case "release":
                self._ranks.release(order["pairs"])
            case "control":
                self._ranks.control(int(order["rank"]), order["message"])

    def reap(self, pid: int, status: int) -> bool:
        """Handle the end of a process; return whether the process was a rank of this step."""
        return self._ranks.reap(pid, status)

    def resume(self) -> None:
        """Resume reading the ranks' output, because it can be sent to the manager again."""
        while self._paused and self._has_room():
            reader = self._paused.pop()
            call = partial(self._read, reader)
            self._loop.selector.register(reader, selectors.EVENT_READ, call)

    # ------------------------------------------------------------------ events of the ranks

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        """Report to the manager that all local ranks have entered a barrier."""
        self._report({"report": "barrier", "sequence": sequence, "pairs": pairs})

    def on_failure(self, code: int, number: int, reason: str) -> None:
        """Report to the manager that a rank has failed."""
        self._report({"report": "failure", "code": code, "signal": number, "reason": reason})

    def on_control(self, message: Mapping[str, Any]) -> None:
        """Report to the manager a message about a resize that a rank of this node has sent."""
        self._report({"report": "control", "message": message})

    def on_exit(self, rank: int) -> None:
        """Report to the manager that the process of a rank has ended."""
        self._report({"report": "exit", "rank": rank})

    def on_ranks_ended(self) -> None:
        """Report to the manager that all ranks have ended, after their last output."""
        self._ranks_are_gone = True
        self._finish_if_done()

    # ------------------------------------------------------------------ output

    def _read(self, reader: int, _: int) -> None:
        if not self._has_room():
            self._loop.selector.unregister(reader)
            self._paused.add(reader)
            return
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            return
        if data:
            text = base64.b64encode(data).decode("ascii")
            self._report({"report": "output", "kind": self._pipes[reader], "data": text})
            return
        self._loop.selector.unregister(reader)
        os.close(reader)
        del self._pipes[reader]
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._ranks_are_gone and not self._pipes:
            self._report({"report": "gone"})
            self._on_finished()


def _local_request(world: StartRequest, order: dict[str, Any]) -> StartRequest:
    """Return the request with which this node starts the ranks that an order names.

    Args:
        world: the request that reserved the processors of the script's job on this node.
        order: the order; node-specific variables in it are replaced by those of ``world``.
    """
    here = {
        name: value
        for name, value in world.environment.items()
        if name in {"PLIANT_NODE", "PLIANT_NODE_ADDRESS", "PLIANT_TOKEN_FILE", "FI_TCP_IFACE"}
    }
    ranks = [(int(rank), int(processor)) for rank, processor in order["ranks"]]
    return place_on(
        replace(
            world,
            world=str(order["world"]),
            type=str(order.get("type", "mpi")),
            size=int(order["size"]),
            mapping=str(order["mapping"]),
            argv=list(order["argv"]),
            environment={**order["environment"], **here},
            directory=str(order["directory"]),
            umask=int(order["umask"]),
        ),
        world,
        ranks,
    )


def place_on(
    request: StartRequest, world: StartRequest, ranks: list[tuple[int, int]]
) -> StartRequest:
    """Return a copy of a request, with ``ranks`` and the CPUs and devices of their processors.

    A command that starts the daemon of another MPI library gets all CPUs and devices that the job
    has on this node.

    Args:
        request: the request to start a step or command.
        world: the request of the script's job on this node, which has the CPUs and devices.
        ranks: pairs of rank and processor for the copy.
    """
    if request.type == COMMAND:
        cpus = sorted({cpu for each in world.cpus for cpu in each})
        devices = {kind: [sorted(chain(*each))] for kind, each in world.devices.items()}
        cpus_of_ranks = [cpus] if cpus else []
        return replace(request, ranks=ranks, cpus=cpus_of_ranks, devices=devices, stage=world.stage)
    places = {processor: place for place, (_, processor) in enumerate(world.ranks)}
    mine = [places[processor] for _, processor in ranks]
    return replace(
        request,
        ranks=ranks,
        cpus=[world.cpus[place] for place in mine] if world.cpus else [],
        devices={kind: [each[p] for p in mine] for kind, each in world.devices.items()},
        stage=world.stage,
    )

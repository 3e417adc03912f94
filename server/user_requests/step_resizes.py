"""Pass users' requests to resize steps of scripts to the nodes, and receive the answers.

A step is a program that a script started with ``pliant run``. The shim of the script, the process
that starts it on its node, decides about the sizes of its steps, so the server stores nothing. A
request and its answer are sent like messages between shims, with `SERVER_RANK` instead of a rank.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from concurrent.futures import Future
from dataclasses import dataclass

from pliant.core.model.jobs import JobType
from pliant.core.values.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.protos.relay_server_rank import SERVER_RANK
from pliant.protos.sanitize_text import sanitize_text
from pliant.server.execution.connections import Connections
from pliant.server.registry.mpi_worlds import WorldRegistry
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.threads import uncancellable_future
from pliant.server.support.user_request_error import UserRequestError

#: Seconds in which the shim has to answer.
ANSWER_TIMEOUT_S = 10.0
#: Characters of an answer that are shown; the shim runs as the job's user.
_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class _Waiting:
    world: str
    node: NodeName
    #: Gets the reason for which the size is refused; an empty text if it is set.
    reason: Future[str]


class StepResizes:
    """Users' unanswered requests to resize steps (programs that a script started).

    Every method may be called from any thread.
    """

    def __init__(
        self, worlds: WorldRegistry, status: StatusCache, connections: Connections
    ) -> None:
        self._worlds, self._status, self._connections = worlds, status, connections
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}

    async def resize(self, job: JobId, step: int, size: int) -> None:
        """Set the size of a malleable step.

        Args:
            job: the job of the script that has started the step.
            step: the number of the step.
            size: the size in processors; 0 to let the step grow and shrink again.

        Raises:
            UserRequestError: the job is no running script, its shim refuses, or does not answer.
        """
        world, node = self._script_of(job)
        number, answer = next(self._numbers), uncancellable_future()
        self._waiting[number] = _Waiting(world, node, answer)
        # Shims of earlier versions read `ack`, and ignore the rest.
        request = {"ack": 0, "request": number, "step": step, "size": size}
        data = json.dumps(request).encode()
        relay = node_pb2.Relay(world=world, from_rank=SERVER_RANK, to_rank=0, data=data)
        try:
            sent = self._connections.send_to_node(node, node_pb2.NodeOrder(relay=relay))
            if not sent:
                raise UserRequestError(f"node {node} is not connected", kind="unavailable")
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                reason = await asyncio.wrap_future(answer)
        except TimeoutError:
            raise UserRequestError(
                f"node {node} has not answered within {ANSWER_TIMEOUT_S:.0f} s: try again",
                kind="unavailable",
            ) from None
        finally:
            del self._waiting[number]
        if reason:
            raise UserRequestError(reason, kind="refused", field="step")

    def on_answer(self, node: NodeName, message: node_pb2.Relay) -> None:
        """Handle the answer of a script's shim, the process that resizes the script's steps.

        An answer for which no request waits is ignored.
        """
        try:
            answer = json.loads(message.data)
            waiting = self._waiting.get(answer["request"])
            reason = sanitize_text(str(answer["reason"]))[:_MAX_REASON]
        except (ValueError, TypeError, KeyError):
            return  # a user may have manipulated the shim; the node is not to blame
        if waiting is None or (waiting.world, waiting.node) != (message.world, node):
            return
        if not waiting.reason.done():
            waiting.reason.set_result(reason)

    def _script_of(self, job: JobId) -> tuple[str, NodeName]:
        """Return the name of the world (the processes) of a script, and the node on which it runs.

        Raises:
            UserRequestError: the job is no script, or it does not run.
        """
        info = self._status.job(job) or {}
        worlds = self._worlds.of_job(job, info["run"]) if info else ()
        if info.get("type") != JobType.SCRIPT.value:
            raise UserRequestError(f"job {job} has no steps: it is no script", kind="refused")
        if not worlds:
            raise UserRequestError(f"job {job} is {info['state']}: it has no steps", kind="refused")
        return worlds[0].name, self._status.node_map.host(worlds[0].processors[0]).name

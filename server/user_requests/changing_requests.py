"""Requests that change something: each becomes an event for the core, whose answer is returned.

Runs in the event loop of the accept thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pliant.core import events
from pliant.core.model.lifecycle import FINAL_STATES, JobState
from pliant.core.support.signals import parse_signal
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import NONE, ProcessorMap, block
from pliant.server.authorisation.access_control import AccessControl, RequestingUser
from pliant.server.execution.connections import Connections
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.execution.pending_requests import StorageDelayedError, UserEvent
from pliant.server.execution.strategy_choice import (
    StrategyChoice,
    check_choice,
    stored_row,
)
from pliant.server.execution.strategy_process import StrategyRefusedError
from pliant.server.registry.array_tasks import JobName, parse_job_name
from pliant.server.registry.job_selection import JobSelection
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests import listing
from pliant.server.user_requests.job_lookup import JobLookup
from pliant.server.user_requests.request_fields import (
    Answer,
    Request,
    read_names,
    read_node,
    read_number,
)
from pliant.server.user_requests.step_resizes import StepResizes
from pliant.server.user_requests.submission.submission_schema import check_priority

#: Requests that concern the processes of one job; the others apply to all tasks of an array.
_FOR_SINGLE_JOBS = frozenset({"suspend", "resume_job", "requeue", "resize", "signal"})
#: Jobs that are cancelled together, before requests of others are taken.
_CANCELLED_AT_ONCE = 1000


class Commands:
    """The methods for requests that change jobs, nodes or the strategy."""

    def __init__(
        self,
        core_loop: CoreLoop,
        status: StatusCache,
        connections: Connections,
        jobs: JobLookup,
        access: AccessControl,
        configured: StrategyChoice,
        step_resizes: StepResizes,
    ) -> None:
        self._configured, self._step_resizes = configured, step_resizes
        self._core_loop, self._status, self._connections = core_loop, status, connections
        self._jobs, self._access = jobs, access

    async def cancel(self, request: Request, peer: RequestingUser) -> Answer:
        """Cancel the jobs in ``ids``; the answer has one result for each.

        Without ``ids``, cancel the jobs that ``users``, ``states`` and ``names`` select. If
        ``users`` is missing, too, only jobs of the requesting user are cancelled. With ``states``,
        jobs and tasks of arrays whose state has changed to another one meanwhile are not cancelled.
        """
        states: frozenset[JobState] = frozenset()
        if request.get("ids") is None and {"users", "states", "names"} & request.keys():
            selection = listing.read_selection(request)
            states = frozenset(map(JobState, selection.states))
            ids: Sequence[int | str] = await self._selected(selection, peer)
        else:
            ids = read_names(request, "ids")
        results: list[Answer] = []
        for start in range(0, len(ids), _CANCELLED_AT_ONCE):
            some = ids[start : start + _CANCELLED_AT_ONCE]
            cancelling = [self._cancel_one(name, peer, states) for name in some]
            results += await asyncio.gather(*cancelling)
        return {"results": results}

    async def _selected(self, selection: JobSelection, peer: RequestingUser) -> list[int]:
        """Return the numbers of the open jobs that a request selects.

        Tasks of a selected array are left out, because they are cancelled with the array.
        """
        if not selection.users:
            selection = replace(selection, users=frozenset({peer.user}))
        infos = [entry.info for entry in await self._jobs.entries(selection)]
        numbers = {info["id"] for info in infos}
        return [int(info["id"]) for info in infos if info.get("array_job") not in numbers]

    async def _cancel_one(
        self, name: int | str, peer: RequestingUser, states: frozenset[JobState]
    ) -> Answer:
        try:
            named = JobName(JobId(name)) if isinstance(name, int) else parse_job_name(name, "ids")
            event: UserEvent = events.JobCancelled(named.job, peer.user, states=states)
            if named.tasks is not None:
                present = await self._jobs.tasks_among(named.job, named.tasks)
                event = events.TasksCancelled(named.job, present, peer.user)
            await self._authorise("cancel", named.job, peer, name)
            await self._ask_of("cancel", named.job, peer, event)
        except UserRequestError as error:
            return {"id": name, "ok": False, "error": str(error)}
        return {"id": name, "ok": True}

    async def hold(self, request: Request, peer: RequestingUser) -> Answer:
        """Prevent the pending job ``id`` from starting."""
        job = await self._authorise("hold", JobId(read_number(request, "id")), peer)
        return await self._ask_of("hold", job, peer, events.JobHeld(job, peer.user))

    async def release(self, request: Request, peer: RequestingUser) -> Answer:
        """Allow the pending job ``id``, which was held back (`hold`), to start."""
        job = await self._authorise("release", JobId(read_number(request, "id")), peer)
        return await self._ask_of("release", job, peer, events.JobReleased(job, peer.user))

    async def priority(self, request: Request, peer: RequestingUser) -> Answer:
        """Set the ``priority`` of job ``id``; only an operator may raise it."""
        job = await self._authorise("priority", JobId(read_number(request, "id")), peer)
        priority = request.get("priority")
        if type(priority) is not int:
            raise UserRequestError("priority: expected a whole number", field="priority")
        check_priority(priority)
        may_raise = self._access.allows("raise a priority", peer)
        event = events.PriorityChanged(job, priority, peer.user, may_raise=may_raise)
        return await self._ask_of("priority", job, peer, event)

    async def signal(self, request: Request, peer: RequestingUser) -> Answer:
        """Send the ``signal``, a name or a number as text, to all processes of job ``id``."""
        job = await self._authorise("signal", JobId(read_number(request, "id")), peer)
        try:
            number = parse_signal(str(request.get("signal")))
        except ValueError as error:
            raise UserRequestError(f"signal: {error}", field="signal") from None
        return await self._ask_of("signal", job, peer, events.JobSignalled(job, number, peer.user))

    async def suspend(self, request: Request, peer: RequestingUser) -> Answer:
        """Make job ``id`` save a checkpoint and give up its processors."""
        job = await self._authorise("suspend", JobId(read_number(request, "id")), peer)
        return await self._ask_of("suspend", job, peer, events.JobSuspended(job, peer.user))

    async def resume_job(self, request: Request, peer: RequestingUser) -> Answer:
        """Put the suspended job ``id`` back into the queue."""
        job = await self._authorise("resume_job", JobId(read_number(request, "id")), peer)
        return await self._ask_of("resume_job", job, peer, events.JobResumed(job, peer.user))

    async def requeue(self, request: Request, peer: RequestingUser) -> Answer:
        """End the run of the job ``id`` and put the job back into the queue."""
        job = await self._authorise("requeue", JobId(read_number(request, "id")), peer)
        return await self._ask_of("requeue", job, peer, events.JobRequeued(job, peer.user))

    async def resize(self, request: Request, peer: RequestingUser) -> Answer:
        """Resize job ``id`` to ``size`` processors, or take certain processors from it.

        The latter are those in the list ``release``, which has nodes (``n2``) and processors of
        nodes (``n1/0``). With ``step`` (a number), resize instead this step, a program that the
        job's script started with ``pliant run``.
        """
        job = await self._authorise("resize", JobId(read_number(request, "id")), peer)
        release = self._named_processors(request.get("release") or [])
        size = read_number(request, "size", default=0)
        if request.get("step") is not None:
            await self._step_resizes.resize(job, read_number(request, "step"), size)
            return {"message": ""}
        return await self._ask_of(
            "resize", job, peer, events.ResizeRequested(job, size, release, peer.user)
        )

    async def strategy(self, request: Request, peer: RequestingUser) -> Answer:
        """Use another ``strategy`` with these ``options`` from now on, also after a restart.

        Running jobs keep their processors until the new strategy plans otherwise.
        """
        name, options = request.get("strategy"), request.get("options") or {}
        if not isinstance(name, str) or not name:
            raise UserRequestError("strategy: expected the name of a strategy", field="strategy")
        if not isinstance(options, dict) or not all(
            isinstance(value, str | int | float | bool | None) for value in options.values()
        ):
            raise UserRequestError("options: expected values by name", field="options")
        choice = StrategyChoice(name, options, peer.user)
        try:
            await asyncio.to_thread(check_choice, choice, self._configured)
            row = stored_row(choice, self._configured)
            message = await asyncio.wrap_future(self._core_loop.switch_strategy(choice, row))
        except StrategyRefusedError as error:
            field = "options" if error.key == "strategy_options" else "strategy"
            raise UserRequestError(f"{field}: {error}", field=field) from None
        return {"message": message}

    async def drain(self, request: Request, peer: RequestingUser) -> Answer:
        """Drain the node ``node`` for the given ``reason``: it gets no more work."""
        reason = str(request.get("reason") or "")
        return await self._ask(events.NodeDrained(read_node(request), reason))

    async def resume(self, request: Request, peer: RequestingUser) -> Answer:
        """End the drain of the node ``node``, so that it gets work again."""
        return await self._ask(events.NodeResumed(read_node(request)))

    async def remove(self, request: Request, peer: RequestingUser) -> Answer:
        """Remove the node ``node`` from the cluster; its controller must have been stopped."""
        node = read_node(request)
        if self._connections.node_connected(node):
            raise UserRequestError(
                f"node {node} is connected: stop its controller first", kind="refused", field="node"
            )
        answer = await self._ask(events.NodeRemoved(node))
        self._connections.close_node(node)  # it came meanwhile: as a new node it may come again
        return answer

    async def _ask(self, event: UserEvent) -> Answer:
        """Pass a user's request to the core, and return the core's answer.

        Raises:
            UserRequestError: the core refuses it, or the result cannot be stored.
        """
        try:
            answer = await asyncio.wrap_future(self._core_loop.ask(event))
        except StorageDelayedError as error:
            if error.taken:
                raise UserRequestError(
                    f"the job database cannot be written ({error}): the server keeps trying to "
                    "store the result of the request, which is lost if the server ends before",
                    kind="unavailable",
                ) from None
            raise UserRequestError(
                f"the job database cannot be written ({error}): nothing was changed, try again "
                "later",
                kind="unavailable",
            ) from None
        if answer.refusal:
            raise UserRequestError(answer.refusal, kind="refused")
        return {"message": answer.message}

    async def _ask_of(
        self, operation: str, job: JobId, peer: RequestingUser, event: UserEvent
    ) -> Answer:
        """Pass a request about a job to the core, and return the core's answer.

        Args:
            operation: the name of the operation.
            job: the number of the job.
            peer: the user.
            event: the request, as an event for the core.

        Raises:
            UserRequestError: the core refuses the request. If the job has ended in the meantime,
                the error states this.
        """
        try:
            return await self._ask(event)
        except UserRequestError:
            await self._authorise(operation, job, peer)
            raise

    async def _authorise(
        self, operation: str, job: JobId, peer: RequestingUser, name: int | str = 0
    ) -> JobId:
        """Check that a user may carry out an operation on an open job; return the job's number.

        Args:
            operation: the name of the operation.
            job: the number of the job.
            peer: the user.
            name: the job as the user wrote it, for messages; 0 for its number.

        Raises:
            UserRequestError: the user may not, there is no such job, it has ended, or the operation
                is not possible for an array or for a task that has not started.
        """
        state = await self._jobs.check_owner(operation, job, peer)
        if state in FINAL_STATES:
            # The core has forgotten the job and would answer that there is no such job.
            raise UserRequestError(
                f"job {name or job} has already ended ({state})", kind="refused", field="id"
            )
        if operation in _FOR_SINGLE_JOBS and self._jobs.is_array(job):
            raise UserRequestError(
                f"job {job} is an array: name one of its tasks, as in {job}_1",
                kind="refused",
                field="id",
            )
        if operation in _FOR_SINGLE_JOBS and self._status.is_pending_task(job):
            raise UserRequestError(
                f"this task is {state}: it has not started", kind="refused", field="id"
            )
        return job

    def _named_processors(self, places: Any) -> ProcessorMap:
        """Return the processors that the field ``release`` of a request names.

        It is a list such as ``["n2", "n1/0"]``: all processors of n2, and the first one of n1.

        Raises:
            UserRequestError: there is no such node or processor.
        """
        if not isinstance(places, list):
            raise UserRequestError("release: expected a list of nodes", field="release")
        result = NONE
        for place in places:
            name, slash, slot = str(place).partition("/")
            host = self._status.host(NodeName(name))
            if host is None:
                raise UserRequestError(f"release: there is no node {name}", field="release")
            if not slash:
                result |= block(host.first, host.slots)
            elif slot.isdecimal() and int(slot) < host.slots:
                result |= 1 << (host.first + int(slot))
            else:
                raise UserRequestError(
                    f"release: node {name} has the slots 0 to {host.slots - 1}", field="release"
                )
        return result

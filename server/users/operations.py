"""What users may ask for on their socket. Runs in the accept thread's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.core import events
from pliant.core.explain import explain
from pliant.core.model.lifecycle import FINAL_STATES
from pliant.core.state import contract_status
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import NONE, ProcessorMap, block
from pliant.server.database.reader import Reader
from pliant.server.execution.connections import Connections
from pliant.server.execution.execute import CoreLoop
from pliant.server.execution.pending_requests import StorageDelayedError, UserEvent
from pliant.server.registry.status_cache import ENDED_JOBS_KEPT_S, Info, StatusCache
from pliant.server.support.clock import HybridClock
from pliant.server.users import listing
from pliant.server.users.answers import Objects
from pliant.server.users.authorisation import (
    REQUIRED_ROLE,
    AccessControl,
    Peer,
    Role,
    without_private,
)
from pliant.server.users.queries import Queries
from pliant.server.users.refused_requests import RefusedRequests
from pliant.server.users.submission_schema import UserRequestError, check_priority
from pliant.server.users.submissions import Submissions

Answer = dict[str, Any]
Request = Mapping[str, Any]

#: Jobs that one request may name.
MAX_IDS = 10_000


@dataclass(frozen=True)
class ServerInfo:
    """What this server says of itself."""

    pid: int
    generation: int
    started: float
    address: str
    version: str


class Operations:
    """One method per operation."""

    def __init__(  # noqa: PLR0913 - what users may ask for concerns many parts
        self,
        core_loop: CoreLoop,
        status: StatusCache,
        reader: Reader,
        submissions: Submissions,
        clock: HybridClock,
        identity: ServerInfo,
        *,
        stop: Callable[[], None],
        connections: Connections,
        queries: Queries,
        refusals: RefusedRequests,
        access: AccessControl,
    ) -> None:
        self._connections, self._access = connections, access
        self._core_loop, self._status, self._reader = core_loop, status, reader
        self._submissions, self._clock, self._identity = submissions, clock, identity
        self._queries, self._refusals, self._stop = queries, refusals, stop
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        self._operations: dict[str, Callable[[Request, Peer], Awaitable[Answer]]] = {
            "submit": self._submit,
            "query": self._query,
            "jobs": self._jobs,
            "nodes": self._nodes,
            "cancel": self._cancel,
            "hold": self._hold,
            "release": self._release,
            "priority": self._priority,
            "suspend": self._suspend,
            "resume_job": self._resume_job,
            "requeue": self._requeue,
            "resize": self._resize,
            "why": self._why,
            "history": self._history,
            "refusals": self._refused,
            "wait": self._wait,
            "ping": self._ping,
            "stop": self._stop_server,
            "drain": self._drain,
            "resume": self._resume,
            "remove": self._remove,
        }

    async def handle(self, request: Request, peer: Peer) -> Answer:
        """Carry a request out, or raise RequestError."""
        name = request.get("op")
        operation = self._operations.get(name) if isinstance(name, str) else None
        if operation is None:
            raise UserRequestError(
                f"op: {name!r} is unknown; known: {', '.join(self._operations)}", field="op"
            )
        try:
            if REQUIRED_ROLE.get(str(name)) is not Role.OWNER:  # else it depends on the job
                self._access.check(str(name), peer)
            return {"ok": True, **await operation(request, peer)}
        except UserRequestError as error:
            self._refusals.record(request, peer.user, peer.uid, error)
            raise

    # ---------------------------------------------------------------- submit and look

    async def _submit(self, request: Request, peer: Peer) -> Answer:
        return {"id": await self._submissions.submit(request.get("job"), peer.user, peer.uid)}

    async def _query(self, request: Request, peer: Peer) -> Answer:
        answer = await self._queries.answer(request.get("job"), peer.user, peer.uid)
        return {**answer, "now": self._clock.now()}

    async def _jobs(self, request: Request, peer: Peer) -> Answer:
        shown = listing.shown_fields(request)
        answer: Answer = {"missing": [], "now": self._clock.now()}
        if request.get("ids") is None:
            since = self._clock.now() - ENDED_JOBS_KEPT_S if request.get("all") else None
            entries = self._status.entries(ended_since=since)
            infos = (
                self._visible(self._status.info(entry, shown), entry.uid, peer) for entry in entries
            )
        else:
            wanted = _numbers(request, "ids")
            found = await self._find(wanted, peer)
            infos = (found[job] for job in wanted if job in found)
            answer["missing"] = [job for job in wanted if job not in found]
        return {**answer, **listing.of(infos, shown)}

    def _visible(self, info: Info, owner: int, peer: Peer) -> Info:
        """Return of a job what a peer may see."""
        may_see = self._access.allows("private values", peer, owner)
        return info if may_see else without_private(info)

    async def _find(self, ids: Sequence[int], peer: Peer) -> dict[int, Info]:
        """Jobs from the board, older ones from the database, as a peer may see them."""
        found: dict[int, Info] = {}
        for number in ids:
            entry = self._status.entry(JobId(number))
            if entry is not None:
                info = self._status.info(entry)
                found[number] = self._visible(info, entry.uid, peer)
        rest = [number for number in ids if number not in found]
        if rest:
            for job, summary in await self._reader.in_thread(lambda reader: reader.jobs(rest)):
                info = self._status.describe_stored(job, summary)
                found[job.id] = self._visible(info, job.spec.uid, peer)
        return found

    async def _nodes(self, request: Request, peer: Peer) -> Answer:
        identity = self._identity
        server = {
            "pid": identity.pid,
            "generation": identity.generation,
            "started": identity.started,
            "address": identity.address,
        }
        return {
            "nodes": [
                {**node, "connected": self._connections.node_connected(node["name"])}
                for node in self._status.nodes()
            ],
            "strategy": self._status.strategy,
            "resources": self._status.resource_use(),
            "server": server,
            "now": self._clock.now(),
        }

    async def _ping(self, request: Request, peer: Peer) -> Answer:
        identity = self._identity
        return {
            "pid": identity.pid,
            "generation": identity.generation,
            "version": identity.version,
            "nodes": self._status.nodes_up,
        }

    async def _why(self, request: Request, peer: Peer) -> Answer:
        job = JobId(_number(request, "id"))
        await self._check_owner("why", job, peer)
        info = (await self._find([job], peer))[job]
        now, progress = self._clock.now(), self._status.progress(job)
        try:
            text = await asyncio.wrap_future(
                self._core_loop.call(
                    lambda core: explain(core, job, now, progress), uncommitted_ok=True
                )
            )
        except KeyError:  # its books are closed
            last = (await self._reader.in_thread(lambda reader: reader.history(job)))[-3:]
            text = [f"job {job} ({info['name']}) is {info['state']}", *(e["text"] for e in last)]
            for ended, _ in await self._reader.in_thread(lambda reader: reader.jobs([job])):
                text += contract_status.lines(ended, now)
        if info["state"] not in ("PENDING", "HELD", "REJECTED") and info["stdout"]:
            text.append(f"what it prints is in {info['stdout']}")
        return {"text": text, "facts": info}

    async def _history(self, request: Request, peer: Peer) -> Answer:
        job = None if request.get("id") is None else _number(request, "id")
        after = _number(request, "after", default=0)
        limit = None if request.get("limit") is None else _number(request, "limit")
        if job is not None:
            await self._check_owner("history of a job", JobId(job), peer)
        every = job is not None or self._access.allows("history of all jobs", peer)
        owner = None if every else peer.uid
        lines = await self._reader.in_thread(
            lambda reader: reader.history(job, after, limit, owner)
        )
        return {"events": Objects(lines)}

    async def _refused(self, request: Request, peer: Peer) -> Answer:
        """Refused requests: a user's own, all of them for an operator."""
        every = self._access.allows("refusals of all users", peer)
        uid = None if every else peer.uid
        return {"events": await self._reader.in_thread(lambda reader: reader.refusals(uid))}

    # ---------------------------------------------------------------- wait

    async def _wait(self, request: Request, peer: Peer) -> Answer:
        job = _number(request, "id")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job, []).append(waiter)  # before the look: no end slips through
        try:
            entry = self._status.entry(JobId(job))
            if entry is not None and not entry.final:
                await waiter
            found = (await self._find([job], peer)).get(job)
        finally:
            self._forget_waiter(job, waiter)
        if found is None:
            raise _not_found(job)
        return {"job": found}

    def _forget_waiter(self, job: int, waiter: asyncio.Future[None]) -> None:
        others = self._waiters.get(job, [])
        if waiter in others:
            others.remove(waiter)
        if not others:
            self._waiters.pop(job, None)

    def on_jobs_ended(self, jobs: Sequence[int]) -> None:
        """Release who waits for these jobs."""
        for job in jobs:
            for waiter in self._waiters.pop(job, []):
                if not waiter.done():
                    waiter.set_result(None)
        self._status.drop_old(self._clock.now())

    def release_waiters(self) -> None:
        """The server stops: tell everybody who waits."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(UserRequestError("the server stops", kind="unavailable"))

    # ---------------------------------------------------------------- act

    async def _cancel(self, request: Request, peer: Peer) -> Answer:
        ids = _numbers(request, "ids")
        results = await asyncio.gather(*(self._cancel_one(JobId(job), peer) for job in ids))
        return {"results": list(results)}

    async def _cancel_one(self, job: JobId, peer: Peer) -> Answer:
        try:
            await self._authorise("cancel", job, peer)
            await self._ask_of("cancel", job, peer, events.JobCancelled(job, peer.user))
        except UserRequestError as error:
            return {"id": job, "ok": False, "error": str(error)}
        return {"id": job, "ok": True}

    async def _hold(self, request: Request, peer: Peer) -> Answer:
        job = await self._authorise("hold", JobId(_number(request, "id")), peer)
        return await self._ask_of("hold", job, peer, events.JobHeld(job, peer.user))

    async def _release(self, request: Request, peer: Peer) -> Answer:
        job = await self._authorise("release", JobId(_number(request, "id")), peer)
        return await self._ask_of("release", job, peer, events.JobReleased(job, peer.user))

    async def _priority(self, request: Request, peer: Peer) -> Answer:
        job = await self._authorise("priority", JobId(_number(request, "id")), peer)
        priority = request.get("priority")
        if type(priority) is not int:
            raise UserRequestError("priority: expected a whole number", field="priority")
        check_priority(priority)
        may_raise = self._access.allows("raise a priority", peer)
        event = events.PriorityChanged(job, priority, peer.user, may_raise=may_raise)
        return await self._ask_of("priority", job, peer, event)

    async def _suspend(self, request: Request, peer: Peer) -> Answer:
        job = await self._authorise("suspend", JobId(_number(request, "id")), peer)
        return await self._ask_of("suspend", job, peer, events.JobSuspended(job, peer.user))

    async def _resume_job(self, request: Request, peer: Peer) -> Answer:
        job = await self._authorise("resume_job", JobId(_number(request, "id")), peer)
        return await self._ask_of("resume_job", job, peer, events.JobResumed(job, peer.user))

    async def _requeue(self, request: Request, peer: Peer) -> Answer:
        job = await self._authorise("requeue", JobId(_number(request, "id")), peer)
        return await self._ask_of("requeue", job, peer, events.JobRequeued(job, peer.user))

    async def _resize(self, request: Request, peer: Peer) -> Answer:
        job = await self._authorise("resize", JobId(_number(request, "id")), peer)
        release = self._places(request.get("release") or [])
        size = _number(request, "size", default=0)
        return await self._ask_of(
            "resize", job, peer, events.ResizeRequested(job, size, release, peer.user)
        )

    async def _drain(self, request: Request, peer: Peer) -> Answer:
        reason = str(request.get("reason") or "")
        return await self._ask(events.NodeDrained(_node(request), reason))

    async def _resume(self, request: Request, peer: Peer) -> Answer:
        return await self._ask(events.NodeResumed(_node(request)))

    async def _remove(self, request: Request, peer: Peer) -> Answer:
        node = _node(request)
        if self._connections.node_connected(node):
            raise UserRequestError(
                f"node {node} is connected: stop its controller first", kind="refused", field="node"
            )
        answer = await self._ask(events.NodeRemoved(node))
        self._connections.close_node(node)  # it came meanwhile: as a new node it may come again
        return answer

    async def _stop_server(self, request: Request, peer: Peer) -> Answer:
        asyncio.get_running_loop().call_later(0.05, self._stop)
        return {"pid": self._identity.pid}

    # ---------------------------------------------------------------- helpers

    async def _ask(self, event: UserEvent) -> Answer:
        try:
            answer = await asyncio.wrap_future(self._core_loop.ask(event))
        except StorageDelayedError as error:
            if error.taken:
                raise UserRequestError(
                    f"the job database cannot be written ({error}): the server goes on trying to "
                    "store what came of the request, which is lost if it ends before",
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

    async def _ask_of(self, operation: str, job: JobId, peer: Peer, event: UserEvent) -> Answer:
        """Ask about a job; one that has ended since it was looked up is told as such."""
        try:
            return await self._ask(event)
        except UserRequestError:
            await self._authorise(operation, job, peer)
            raise

    async def _authorise(self, operation: str, job: JobId, peer: Peer) -> JobId:
        """Let only those act on a job who may, and nobody on one that has ended."""
        state = await self._check_owner(operation, job, peer)
        if state in FINAL_STATES:
            # The core has closed its books and would say that there is no such job.
            raise UserRequestError(
                f"job {job} has already ended ({state})", kind="refused", field="id"
            )
        return job

    async def _check_owner(self, operation: str, job: JobId, peer: Peer) -> str:
        """Check that a peer may do this to a job, wherever it is known; return its state.

        A job may be in the database and not on the status board: it ended long ago.
        """
        entry = self._status.entry(job)
        if entry is not None:
            owner, user, state = entry.uid, entry.info["user"], str(entry.info["state"])
        elif found := await self._reader.in_thread(lambda reader: reader.jobs([job])):
            spec = found[0][0].spec
            owner, user, state = spec.uid, spec.user, found[0][0].state.value
        else:
            raise _not_found(job)
        self._access.check(operation, peer, owner, f"job {job} belongs to {user}")
        return state

    def _places(self, places: Any) -> ProcessorMap:
        """``["n2", "n1/0"]`` as processors."""
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


def _not_found(job: int) -> UserRequestError:
    return UserRequestError(f"there is no job {job}", kind="not_found", field="id")


def _number(request: Request, field: str, default: int | None = None) -> int:
    value = request.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise UserRequestError(f"{field}: expected a number, got {value!r:.40}", field=field)
    return value


def _numbers(request: Request, field: str) -> list[int]:
    values = request.get(field)
    if not isinstance(values, list) or len(values) > MAX_IDS:
        raise UserRequestError(f"{field}: expected at most {MAX_IDS} numbers", field=field)
    return [_number({field: value}, field) for value in values]


def _node(request: Request) -> NodeName:
    name = request.get("node")
    if not isinstance(name, str) or not name:
        raise UserRequestError("node: expected the name of a node", field="node")
    return NodeName(name)

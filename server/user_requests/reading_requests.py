"""Requests that only read: jobs, nodes, history, explanations and usage. One waits for job ends.

The code runs in the event loop of the accept thread. Answers come from the status cache and, for
jobs that ended long ago, from the database.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pliant.core.job_explanation import explain
from pliant.core.model.usage import AllocationPhase
from pliant.core.state import profit_contract_status, queue_snapshot, views
from pliant.core.state.usage_reports import open_phases, standings
from pliant.core.transitions.time_limits import time_limits_left
from pliant.core.values.ids import JobId
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.database import history_search
from pliant.server.database.reader import MAX_HISTORY_LINES, PhaseQuery, Reader
from pliant.server.execution.connections import Connections
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.registry.array_tasks import task_fields, title
from pliant.server.registry.status_cache import ENDED_JOBS_KEPT_S, Info, StatusCache
from pliant.server.support.clock import HybridClock
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests import listing
from pliant.server.user_requests.answer_encoding import Objects
from pliant.server.user_requests.job_lookup import JobLookup
from pliant.server.user_requests.request_fields import (
    Answer,
    Request,
    not_found,
    read_names,
    read_number,
)
from pliant.strategies import known_strategies, strategy_options
from pliant.strategies.start_forecast import expected_starts

#: Maximum number of phases in one answer.
MAX_PHASES = 100_000


@dataclass(frozen=True)
class ServerInfo:
    """What ``pliant ping`` and ``nodestat`` show about this server."""

    pid: int
    generation: int
    started: float
    address: str
    version: str


class StateQueries:
    """One method for each request that reads jobs, nodes or the history."""

    def __init__(
        self,
        core_loop: CoreLoop,
        status: StatusCache,
        reader: Reader,
        clock: HybridClock,
        connections: Connections,
        jobs: JobLookup,
        identity: ServerInfo,
    ) -> None:
        self._core_loop, self._status, self._reader = core_loop, status, reader
        self._clock, self._connections, self._jobs = clock, connections, jobs
        self._identity = identity
        #: Requests that wait for the end of a job, by its number.
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        #: Those of these numbers that were tasks and not jobs yet, with their arrays.
        self._awaited_tasks: dict[int, int] = {}

    async def jobs(self, request: Request, peer: RequestingUser) -> Answer:
        """List the jobs in ``ids``, or the open ones; with ``all`` also jobs of the last hour.

        The request may name ``users``, ``states`` and ``names``. With ``since``, jobs that ended at
        this time or later are listed, too. With ``fields``, only these values of each job are sent,
        as rows or, with ``by_column``, as blocks of columns.
        """
        shown, now = listing.shown_fields(request), self._clock.now()
        cached_since = now - ENDED_JOBS_KEPT_S
        selection = listing.read_selection(request, cached_since if request.get("all") else None)
        answer: Answer = {"missing": [], "now": now}
        infos: Iterable[Info]
        with_ended = selection.ended_since is not None
        if request.get("ids") is None:
            if selection.wants_all and selection.ended_since in (None, cached_since):
                entries = self._status.entries(ended_since=selection.ended_since)
                infos = self._jobs.visible_jobs(entries, peer, shown)
            else:
                infos, complete = await self._jobs.select(selection, peer, cached_since, shown)
                answer["complete"] = complete
        else:
            names = read_names(request, "ids")
            wanted, missing, answer["complete"] = await self._jobs.numbers(names)
            found = await self._jobs.find(wanted, peer)
            infos = [found[job] for job in wanted if job in found]
            missing += [name for name in names if isinstance(name, int) and name not in found]
            answer["missing"] = missing
            with_ended = True
        if shown is not None:
            infos = listing.table_lines(infos, with_ended=with_ended)
        by_column = bool(request.get("by_column"))
        return {**answer, **listing.job_list(infos, shown, by_column=by_column)}

    async def number(self, name: object) -> object:
        """Return the job number for a name such as ``17_3`` (task 3 of array 17).

        See `JobLookup.number`.
        """
        return await self._jobs.number(name)

    async def starts(self, request: Request, peer: RequestingUser) -> Answer:
        """Forecast when the first jobs of the queue will start (`strategies.expected_starts`)."""
        now = self._clock.now()
        view, later, limits = await asyncio.wrap_future(
            self._core_loop.call(
                lambda core: (
                    views.view(core.state),
                    views.waiting_for_begin(core.state),
                    time_limits_left(core.state, now),
                ),
                uncommitted_ok=True,
            )
        )
        found = await self._reader.in_thread(
            lambda _: expected_starts(replace(view, now=now), self._status.strategy, limits, later)
        )
        return {"starts": {str(job): start for job, start in found.items()}, "now": now}

    async def snapshot(self, request: Request, peer: RequestingUser) -> Answer:
        """Copy the queue, the running jobs and the nodes, for a simulation by the user.

        Private values of the jobs of others are blank unless the user is an operator.
        """
        every = self._jobs.access.allows("private values of all jobs", peer)
        now = self._clock.now()
        copied, resources, limited = await asyncio.wrap_future(
            self._core_loop.call(
                lambda core: (
                    queue_snapshot.take_snapshot(core.state, now),
                    len(core.state.needing),
                    core.state.user_limits.limits_processors,
                ),
                uncommitted_ok=True,
            )
        )
        return {
            "jobs": Objects(queue_snapshot.job_rows(copied, None if every else peer.uid)),
            "nodes": list(copied.nodes),
            "left_out": copied.left_out,
            "jobs_with_resources": resources,
            "users_are_limited": limited,
            "strategy": self._status.strategy,
            "options": dict(self._core_loop.strategy_options),
            "all_values": every,
            "now": now,
        }

    async def nodes(self, request: Request, peer: RequestingUser) -> Answer:
        """List the nodes and the named resources, with information about this server."""
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

    async def strategies(self, request: Request, peer: RequestingUser) -> Answer:
        """List the strategies and their options, and the strategy in force."""
        known = await self._reader.in_thread(lambda _: [_described(n) for n in known_strategies()])
        return {
            "strategies": [each for each in known if each is not None],
            "strategy": self._status.strategy,
            "options": dict(self._status.strategy_options),
        }

    async def ping(self, request: Request, peer: RequestingUser) -> Answer:
        """Return the server's identity, and the number of nodes that accept new work."""
        identity = self._identity
        return {
            "pid": identity.pid,
            "generation": identity.generation,
            "version": identity.version,
            "nodes": self._status.nodes_up,
        }

    async def why(self, request: Request, peer: RequestingUser) -> Answer:
        """Explain the state of the job ``id`` in sentences."""
        job = JobId(read_number(request, "id"))
        await self._jobs.check_owner("why", job, peer)
        info = (await self._jobs.find([job], peer))[job]
        now, progress = self._clock.now(), self._status.progress(job)
        number = JobId(info.get("array_job", job)) if self._status.is_pending_task(job) else job
        try:
            text = await asyncio.wrap_future(
                self._core_loop.call(
                    lambda core: explain(core, number, now, progress), uncommitted_ok=True
                )
            )
        except KeyError:  # the core forgets a job that has ended
            events = await self._reader.in_thread(lambda reader: reader.history(job))
            last = [event for event in events if event["kind"] != "processors.released"][-3:]
            text = [f"job {title(info)} ({info['name']}) is {info['state']}"]
            text += [event["text"] for event in last]
            for ended, _ in await self._reader.in_thread(lambda reader: reader.jobs([job])):
                text += profit_contract_status.lines(ended, now)
        if number != job:  # it is explained by its array
            text.insert(0, f"job {title(info)} is {info['state']}: {info['reason']}")
        if info["state"] not in ("PENDING", "HELD", "REJECTED") and info["stdout"]:
            text.append(f"what it prints is in {info['stdout']}")
        return {"text": text, "facts": info}

    async def history(self, request: Request, peer: RequestingUser) -> Answer:
        """List events of the job ``id``, or of all jobs and nodes that the user may see.

        The request may select events by number (``after``, ``limit``), by time (``since``,
        ``until``) and by ``kinds``. ``complete`` in the answer is whether all of them are listed.
        If there are more, the answer has the number ``next``, to be sent as ``after``.
        """
        job = None if request.get("id") is None else read_number(request, "id")
        after = read_number(request, "after", default=0)
        limit = None if request.get("limit") is None else read_number(request, "limit")
        if job is not None:
            await self._jobs.check_owner("history of a job", JobId(job), peer)
        every = job is not None or self._jobs.access.allows("history of all jobs", peer)
        since, until = (listing.read_time(request, field) for field in ("since", "until"))
        wanted = history_search.EventFilter(
            job, None if every else peer.uid, until, listing.read_texts(request, "kinds")
        )
        if since is None and not after and limit is None:
            events, complete = await history_search.newest_events(self._reader, wanted)
            return {"events": Objects(events), "complete": complete}
        most = MAX_HISTORY_LINES if limit is None else min(limit, MAX_HISTORY_LINES)
        events, following = await history_search.events_after(
            self._reader, wanted, after, most, since
        )
        found: Answer = {"events": Objects(events), "complete": following is None}
        return found if following is None else {**found, "next": following}

    async def refusals(self, request: Request, peer: RequestingUser) -> Answer:
        """List refused requests: the user's own, or all of them for an operator."""
        every = self._jobs.access.allows("refusals of all users", peer)
        uid = None if every else peer.uid
        return {"events": await self._reader.in_thread(lambda reader: reader.refusals(uid))}

    async def audit(self, request: Request, peer: RequestingUser) -> Answer:
        """List submissions, changes and refusals: the user's own, or all for an operator.

        The request may have a time ``since`` and a ``limit``. If there are more than ``limit``,
        only the newest are listed.
        """
        every = self._jobs.access.allows("audit of all users", peer)
        since = listing.read_time(request, "since") or 0.0
        limit = min(MAX_HISTORY_LINES, read_number(request, "limit", default=MAX_HISTORY_LINES))
        uid = None if every else peer.uid
        events = await self._reader.in_thread(lambda reader: reader.audit(uid, since, limit))
        return {"events": Objects(events), "complete": len(events) < limit, "all_users": every}

    # ---------------------------------------------------------------- wait

    async def wait(self, request: Request, peer: RequestingUser) -> Answer:
        """Wait until the job ``id`` has ended, then return it."""
        job = read_number(request, "id")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job, []).append(
            waiter
        )  # before the look, so that no end is missed
        try:
            entry = self._status.entry(JobId(job))
            if entry is not None and not entry.final:
                if not entry.run and "array_job" in entry.info:
                    self._awaited_tasks[job] = entry.info["array_job"]
                await waiter
            found = (await self._jobs.find([job], peer)).get(job)
        finally:
            self._forget_waiter(job, waiter)
        if found is None:
            raise not_found(job)
        return {"job": found}

    def _forget_waiter(self, job: int, waiter: asyncio.Future[None]) -> None:
        others = self._waiters.get(job, [])
        if waiter in others:
            others.remove(waiter)
        if not others:
            self._waiters.pop(job, None)

    def on_jobs_ended(self, jobs: Sequence[int]) -> None:
        """Answer the requests that wait for these jobs, or for tasks of these arrays."""
        for job in jobs:
            self._release(job)
        ended = frozenset(jobs)
        self._release_ended([job for job, array in self._awaited_tasks.items() if array in ended])
        self._status.drop_old(self._clock.now())

    def release_waiters_of_tasks(self) -> None:
        """Answer the requests that wait for tasks which were cancelled before they became jobs."""
        self._release_ended(list(self._awaited_tasks))

    def _release_ended(self, tasks: Sequence[int]) -> None:
        """Answer the requests that wait for the end of a task in ``tasks``, if it has ended."""
        for job in tasks:
            entry = self._status.entry(JobId(job))
            if entry is None or entry.final:
                self._release(job)

    def _release(self, job: int) -> None:
        self._awaited_tasks.pop(job, None)
        for waiter in self._waiters.pop(job, []):
            if not waiter.done():
                waiter.set_result(None)

    def release_waiters(self) -> None:
        """Refuse all requests that wait for a job, because the server stops."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(UserRequestError("the server stops", kind="stopping"))


class UsageQueries:
    """One method for each request that reads the usage of processors."""

    def __init__(
        self, core_loop: CoreLoop, reader: Reader, clock: HybridClock, jobs: JobLookup
    ) -> None:
        self._core_loop, self._reader, self._clock = core_loop, reader, clock
        self._jobs, self._access = jobs, jobs.access

    async def shares(self, request: Request, peer: RequestingUser) -> Answer:
        """List accounts and users with their shares, decayed usage and fair-share factors."""
        now = self._clock.now()
        half_life_s, found = await asyncio.wrap_future(
            self._core_loop.call(lambda core: standings(core.state, now), uncommitted_ok=True)
        )
        return {
            "half_life_s": None if math.isinf(half_life_s) else half_life_s,
            "shares": [standing._asdict() for standing in found],
            "now": now,
        }

    async def _job_numbers(self, request: Request) -> tuple[Sequence[int], bool]:
        """Return the numbers of the jobs that a request names, with the tasks of its arrays.

        Empty if the request names none, which stands for all jobs. The second value is False if
        tasks of a large array were left out.
        """
        if not request.get("ids"):
            return (), True
        names = read_names(request, "ids")
        found, missing, complete = await self._jobs.numbers(names, MAX_PHASES)
        if missing and not found:
            raise UserRequestError(f"there is no job {missing[0]}", kind="not_found", field="ids")
        return found, complete

    async def accounting(self, request: Request, peer: RequestingUser) -> Answer:
        """List the phases of jobs. A phase is a time in which a job had the same processors.

        A user gets the phases of the user's own jobs, an operator the phases of all jobs. The
        request may select by ``ids``, ``user``, ``account``, ``since`` and ``until``. Phases that
        have not ended come last. With ``steps``, the answer also has the steps of the jobs in
        ``ids``, the programs that scripts started with ``pliant run``.
        """
        every = self._access.allows("accounting of all users", peer)
        with_steps = request.get("steps") or False
        if not isinstance(with_steps, bool):
            raise UserRequestError("steps: expected true or false", field="steps")
        jobs, complete = await self._job_numbers(request)
        wanted = PhaseQuery(
            jobs=frozenset(jobs),
            uid=None if every else peer.uid,
            user=_text(request, "user"),
            account=_text(request, "account"),
            since=listing.read_time(request, "since"),
            until=listing.read_time(request, "until"),
            limit=MAX_PHASES,
        )
        now = self._clock.now()
        # First the open phases, so that none is missed that ends in between. Its row is durable
        # when the core answers, or the phase is still open.
        current = await asyncio.wrap_future(
            self._core_loop.call(lambda core: open_phases(core.state, now))
        )
        ended = await self._reader.in_thread(lambda reader: reader.phases(wanted))
        known = {(phase.job, phase.start) for phase in ended}
        current = [
            phase
            for phase in current
            if wanted.selects(phase) and (phase.job, phase.start) not in known
        ]
        phases = [*ended, *current]
        arrays = await self._reader.in_thread(
            lambda reader: reader.arrays_of(sorted({phase.job for phase in phases}))
        )
        rows = [
            *(_row(phase, arrays) for phase in ended),
            *({**_row(phase, arrays), "end": None} for phase in current),
        ]
        answer = {
            "phases": Objects(rows),
            "complete": complete and len(ended) < MAX_PHASES,
            "now": now,
            "all_users": every,
        }
        if with_steps:
            steps = await self._reader.in_thread(
                lambda reader: reader.steps(wanted.jobs, wanted.uid, MAX_PHASES)
            )
            answer["steps"] = Objects(steps)
            answer["complete"] = answer["complete"] and len(steps) < MAX_PHASES
        return answer


def _described(name: str) -> dict[str, object] | None:
    """Return a strategy with its options; None if it cannot be loaded."""
    try:
        options = strategy_options(name)
    except Exception:  # a package of others that is broken
        return None
    return {"name": name, "options": [asdict(option) for option in options]}


def _row(phase: AllocationPhase, arrays: Mapping[JobId, JobId]) -> dict[str, object]:
    row = phase._asdict()
    del row["uid"]
    return row | task_fields(phase.job, arrays.get(JobId(phase.job)))


def _text(request: Request, field: str) -> str | None:
    value = request.get(field)
    if value is not None and not isinstance(value, str):
        raise UserRequestError(f"{field}: expected a name, got {value!r:.40}", field=field)
    return value

"""Queries of the database, on connections of their own so that they never wait for the writer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Engine, func, literal, select

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import FINAL_STATES, JobState
from pliant.core.model.nodes import Node
from pliant.core.model.usage import AllocationPhase, Usage
from pliant.core.values.ids import JobId, ResizeId
from pliant.server.database import row_codecs, tables
from pliant.server.database.statements import DONE, REFUSED
from pliant.server.registry.array_tasks import task_fields
from pliant.server.registry.job_program import Program, Summary
from pliant.server.registry.job_selection import JobSelection
from pliant.server.support.threads import thread_pool

T = TypeVar("T")

#: Maximum number of events in one answer.
MAX_HISTORY_LINES = 20_000
#: Values in one statement, whose number SQLite limits.
SLICE = 5000
#: The kind of the event of a submission.
_SUBMITTED = "job.submitted"
_FINAL = [state.value for state in FINAL_STATES]


@dataclass(frozen=True)
class StoredWorld:
    """A row of the database table ``world``: processes that were started together."""

    name: str
    job: JobId
    run: int
    resize: ResizeId
    epoch: int
    processors: tuple[int, ...]


@dataclass(frozen=True)
class PhaseQuery:
    """The phases of jobs to return; a field that is None selects all.

    A phase is a time in which a job had the same processors.
    """

    #: A set, because each open phase of the cluster is compared with it.
    jobs: Collection[int] = frozenset()
    #: The owner.
    uid: int | None = None
    user: str | None = None
    account: str | None = None
    #: Phases that overlap this time, seconds since the epoch.
    since: float | None = None
    until: float | None = None
    limit: int = MAX_HISTORY_LINES

    def selects(self, phase: AllocationPhase) -> bool:
        """Return whether a phase (a time with unchanged allocation) matches this query."""
        return (
            (not self.jobs or phase.job in self.jobs)
            and self.uid in (None, phase.uid)
            and self.user in (None, phase.user)
            and self.account in (None, phase.account)
            and (self.since is None or phase.end > self.since)
            and (self.until is None or phase.start < self.until)
        )


class Reader:
    """The read-only queries of the server. Every method may be called from any thread.

    Methods that read records raise ``UnreadableRowError`` for a damaged row.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = thread_pool("reader", 2)

    async def in_thread(self, query: Callable[[Reader], T]) -> T:
        """Run a query in a thread, which does not block the caller's event loop; return its result.

        A query waits for the disk, and for the lock of another process.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, query, self)

    def close(self) -> None:
        """End the threads of queries and close the connections."""
        self._threads.shutdown()
        self._engine.dispose()

    def meta(self) -> dict[str, str]:
        """Return the table ``meta``: generation (number of start), keys and counters, by name."""
        return {row.key: row.value for row in self._rows(select(tables.meta))}

    def nodes(self) -> list[Node]:
        """Return all nodes, sorted by the number of each one's first processor."""
        query = select(tables.node.c.name, tables.node.c.record).order_by(tables.node.c.first)
        return [
            row_codecs.read_column("node", row._mapping, "record", row_codecs.parse_node)
            for row in self._rows(query)
        ]

    def open_jobs(self) -> list[tuple[Job, Summary]]:
        """Return all jobs that have not ended, with program summaries, in order of submission.

        The records of their programs are parsed as well, so that damage is found when the server
        starts.
        """
        still = tables.job.c.state.not_in(_FINAL)
        query = select(tables.job.c.id, tables.job.c.program).where(
            still, func.json_valid(tables.job.c.program) == 0
        )
        for row in self._rows(query.limit(1)):
            raise row_codecs.unreadable_row("job", row._mapping, "program")
        return self._jobs(still)

    def program_sizes(self) -> dict[JobId, int]:
        """Return the size of arguments and environment of each job that has not ended, in bytes."""
        table = tables.job.c
        parts = (func.json_extract(table.program, f"$.{name}") for name in ("argv", "env"))
        size = sum((func.coalesce(func.length(part), 0) for part in parts), literal(0))
        query = select(table.id, size.label("size")).where(table.state.not_in(_FINAL))
        return {JobId(row.id): int(row.size) for row in self._rows(query)}

    def last_event_time(self) -> float | None:
        """Return the time of the newest event in epoch seconds; None if all jobs have ended."""
        table = tables.job
        if not self._rows(select(table.c.id).where(table.c.state.not_in(_FINAL)).limit(1)):
            return None
        event = tables.job_event.c
        rows = self._rows(select(event.time).order_by(event.seq.desc()).limit(1))
        return float(rows[0].time) if rows else None

    def recent_jobs(self, since: float) -> list[tuple[Job, Summary]]:
        """Return jobs (with program summaries) that ended at ``since`` (epoch seconds) or later."""
        return self._jobs(tables.job.c.state.in_(_FINAL), tables.job.c.end >= since)

    def ended_jobs(
        self, selection: JobSelection, before: float, most: int
    ) -> list[tuple[Job, Summary]]:
        """Return the newest ``most`` matching jobs that ended before a time (epoch seconds).

        The name patterns of the selection are not applied here, so the caller must compare names.
        """
        table = tables.job.c
        wanted = [
            table.state.in_(sorted(selection.final_states)),
            table.end >= (selection.ended_since or 0.0),
            table.end < before,
        ]
        if selection.users:
            wanted.append(table.user.in_(sorted(selection.users)))
        newest = select(table.id).where(*wanted).order_by(table.end.desc()).limit(most)
        return self._jobs(table.id.in_(newest))

    def jobs(self, ids: Sequence[int]) -> list[tuple[Job, Summary]]:
        """Return the jobs with these numbers, with program summaries; omit unknown numbers."""
        found: list[tuple[Job, Summary]] = []
        for start in range(0, len(ids), SLICE):
            found += self._jobs(tables.job.c.id.in_(ids[start : start + SLICE]))
        return found

    def states(self, ids: Sequence[int]) -> dict[JobId, JobState]:
        """Return the state of each job in ``ids``, by job number. Unknown numbers are left out."""
        rows = self._rows_with(select(tables.job.c.id, tables.job.c.state), tables.job.c.id, ids)
        return {JobId(row.id): JobState(row.state) for row in rows}

    def arrays_of(self, ids: Sequence[int]) -> dict[JobId, JobId]:
        """Return the array of each job in ``ids`` that is a task, by the job number of the task."""
        table = tables.job.c
        query = select(table.id, table.array).where(table.array.is_not(None))
        return {JobId(row.id): JobId(row.array) for row in self._rows_with(query, table.id, ids)}

    def arrays_among(self, ids: Sequence[int]) -> list[JobId]:
        """Return the jobs in ``ids`` that are arrays."""
        table = tables.job.c
        query = select(table.id).where(table.last_task.is_not(None))
        return [JobId(row.id) for row in self._rows_with(query, table.id, ids)]

    def tasks_of(self, array: int, most: int) -> list[JobId]:
        """Return at most ``most`` tasks of an array that have become jobs, the newest first."""
        table = tables.job.c
        query = select(table.id).where(table.array == array).order_by(table.id.desc()).limit(most)
        return [JobId(row.id) for row in self._rows(query)]

    def last_job_id(self) -> int:
        """Return the highest job number that is used or reserved, 0 if there is no job.

        An array reserves a number for each of its tasks, even before the task becomes a job.
        """
        table = tables.job.c
        last_of_array = func.max(table.id + 1 + table.last_task)
        rows = self._rows(select(func.max(table.id).label("last"), last_of_array.label("task")))
        return max(int(rows[0].last or 0), int(rows[0].task or 0))

    def program(self, job: int) -> Program | None:
        """Return a job's program (command line, environment, files), None if the job is unknown."""
        query = select(tables.job.c.id, tables.job.c.program).where(tables.job.c.id == job)
        for row in self._rows(query):
            found = row_codecs.read_column("job", row._mapping, "program", row_codecs.parse_program)
            if isinstance(found, Program):
                return found
            whole = self.program(found.array)
            return whole.of_task(found.array, found.task) if whole is not None else None
        return None

    def uid_of(self, job: int) -> int | None:
        """Return the user id of a job, None if the job is unknown."""
        rows = self._rows(select(tables.job.c.uid).where(tables.job.c.id == job))
        return int(rows[0].uid) if rows else None

    def job_with_key(self, uid: int, key: str) -> int | None:
        """Return the number of the job that a user submitted with an idempotency key; else None."""
        where = (tables.job.c.uid == uid) & (tables.job.c.submit_key == key)
        rows = self._rows(select(tables.job.c.id).where(where))
        return int(rows[0].id) if rows else None

    def worlds(self, jobs: Sequence[int]) -> list[StoredWorld]:
        """Return the worlds (ranks that were started together) of these jobs, oldest first."""
        order = (tables.world.c.job, tables.world.c.run, tables.world.c.resize)
        rows = self._rows_with(select(tables.world).order_by(*order), tables.world.c.job, jobs)
        return [
            StoredWorld(
                row.name,
                JobId(row.job),
                row.run,
                ResizeId(row.resize),
                row.epoch,
                row_codecs.read_column(
                    "world", row._mapping, "processors", row_codecs.parse_processors
                ),
            )
            for row in rows
        ]

    def exits(self, worlds: Sequence[str]) -> set[tuple[str, int]]:
        """Return (name of the world, rank) for each rank in these worlds whose exit is stored."""
        table = tables.rank_exit
        rows = self._rows_with(select(table.c.world, table.c.rank), table.c.world, worlds)
        return {(row.world, row.rank) for row in rows}

    def barriers(self, worlds: Sequence[str]) -> dict[tuple[str, int], dict[str, str]]:
        """Return PMI key-value pairs of complete barriers, by (name of world, sequence number)."""
        rows = self._rows_with(select(tables.barrier), tables.barrier.c.world, worlds)
        return {
            (row.world, row.sequence): row_codecs.read_column(
                "fence", row._mapping, "pairs", row_codecs.parse_mapping
            )
            for row in rows
        }

    def usage(self) -> list[Usage]:
        """Return the stored processor usage of all users, sorted by account and user."""
        table = tables.usage.c
        query = select(tables.usage).order_by(table.account, table.user)
        return [Usage(row.account, row.user, row.seconds, row.at, 0) for row in self._rows(query)]

    def phases(self, wanted: PhaseQuery) -> list[AllocationPhase]:
        """Return the first matching phases (times with unchanged allocation), sorted by start."""
        table = tables.phase.c
        query = select(tables.phase).order_by(table.start, table.seq).limit(wanted.limit)
        if wanted.uid is not None:
            query = query.where(table.uid == wanted.uid)
        if wanted.user is not None:
            query = query.where(table.user == wanted.user)
        if wanted.account is not None:
            query = query.where(table.account == wanted.account)
        if wanted.since is not None:
            query = query.where(table.end > wanted.since)
        if wanted.until is not None:
            query = query.where(table.start < wanted.until)
        if not wanted.jobs:
            return [_phase(row) for row in self._rows(query)]
        rows = self._rows_with(query, table.job, sorted(wanted.jobs))
        rows.sort(key=lambda row: (row.start, row.seq))
        return [_phase(row) for row in rows[: wanted.limit]]

    def steps(self, jobs: Collection[int], uid: int | None, limit: int) -> list[dict[str, Any]]:
        """Return the recorded steps of scripts, in order of job, run and number.

        A step is a program that a script started with ``pliant run``.

        Args:
            jobs: the jobs.
            uid: the owner whose jobs are wanted; None for all.
            limit: the largest number of steps to return.
        """
        step, world = tables.step.c, tables.world.c
        query = (
            select(world.job, world.run, tables.step)
            .join_from(tables.step, tables.world, world.name == step.world)
            .order_by(world.job, world.run, step.number)
            .limit(limit)
        )
        if uid is not None:
            query = query.join(tables.job, tables.job.c.id == world.job)
            query = query.where(tables.job.c.uid == uid)
        rows = self._rows_with(query, world.job, sorted(jobs))[:limit]
        return [_step(row) for row in rows]

    def history(
        self,
        job: int | None,
        after: int = 0,
        limit: int | None = None,
        owner: int | None = None,
        kinds: Collection[str] = (),
        last: int | None = None,
        newest: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Return events of a job, or of all jobs and nodes if ``job`` is None, oldest first.

        The result never has more than ``MAX_HISTORY_LINES`` events.

        Args:
            job: the number of a job; None for all jobs and nodes.
            after: only events with a higher number are returned.
            limit: the largest number of events to return; None for ``MAX_HISTORY_LINES``.
            owner: the user id of a user. If given, events of the jobs of other users are left out.
                Records of refused requests are left out, too: they belong to no job, and name the
                program and the folder that a user asked for.
            kinds: only events of these kinds are returned; empty for all.
            last: only events up to this number are returned; None for all.
            newest: which events are left out if there are too many: the oldest if True, the newest
                if False. None is True if neither ``after`` nor ``limit`` is given, else False.
        """
        table = tables.job_event
        if newest is None:
            newest = not after and limit is None
        most = MAX_HISTORY_LINES if limit is None else min(limit, MAX_HISTORY_LINES)
        order = table.c.seq.desc() if newest else table.c.seq
        query = (
            select(table, tables.job.c.array)
            .outerjoin(tables.job, table.c.job == tables.job.c.id)
            .where(table.c.seq > after)
            .order_by(order)
            .limit(most)
        )
        if job is not None:
            query = query.where(table.c.job == job)
        if owner is not None:
            own = select(tables.job.c.id).where(tables.job.c.uid == owner)
            query = query.where(table.c.job.is_(None) | table.c.job.in_(own))
            query = query.where(table.c.kind != REFUSED)
        if last is not None:
            query = query.where(table.c.seq <= last)
        if kinds:
            query = query.where(table.c.kind.in_(sorted(kinds)))
        rows = self._rows(query)
        if newest:
            rows.reverse()
        return [
            {
                "seq": row.seq,
                "time": row.time,
                "job": row.job,
                "kind": row.kind,
                "text": row.text,
                "data": row_codecs.read_column(
                    "job_event", row._mapping, "data", row_codecs.parse_mapping
                ),
                **task_fields(row.job, row.array),
            }
            for row in rows
        ]

    def last_event(self) -> int:
        """Return the number of the newest line of the history, 0 if there is none."""
        rows = self._rows(select(func.max(tables.job_event.c.seq).label("last")))
        return int(rows[0].last or 0)

    def event_before(self, time: float) -> int:
        """Return the number of the newest event that is older than a time, 0 if there is none.

        Event numbers grow with time, so only a few events have to be read.
        """
        event = tables.job_event.c
        older, newer = 0, self.last_event() + 1
        while newer - older > 1:
            middle = (older + newer) // 2
            query = select(event.seq, event.time).where(event.seq <= middle, event.seq > older)
            rows = self._rows(query.order_by(event.seq.desc()).limit(1))
            if not rows or rows[0].time >= time:
                newer = rows[0].seq if rows else newer
                if not rows:
                    older = middle
            else:
                older = middle
        return older

    def refusals(self, uid: int | None) -> list[dict[str, Any]]:
        """Return the refused requests of the user ``uid``, oldest first; None for all users."""
        table = tables.job_event
        query = select(table).where(table.c.job.is_(None), table.c.kind == REFUSED)
        found = [
            {
                "seq": row.seq,
                "time": row.time,
                "kind": row.kind,
                "text": row.text,
                "data": row_codecs.read_column(
                    "job_event", row._mapping, "data", row_codecs.parse_mapping
                ),
            }
            for row in self._rows(query.order_by(table.c.seq))
        ]
        return [line for line in found if uid is None or line["data"].get("uid") == uid]

    def audit(self, uid: int | None, since: float, most: int) -> list[dict[str, Any]]:
        """Return records of submissions, changes and refusals since a time, oldest first.

        If there are more than ``most``, the oldest are left out.

        Args:
            uid: the user who sent the requests, or whose jobs they concerned; None for all users.
            since: seconds since the epoch.
            most: the largest number of records to return.
        """
        event, job = tables.job_event, tables.job
        columns = (event, job.c.user.label("owner"), job.c.uid.label("owner_uid"))
        query = (
            select(*columns)
            .outerjoin(job, event.c.job == job.c.id)
            .where(event.c.kind.in_((REFUSED, DONE, _SUBMITTED)), event.c.time >= since)
            .order_by(event.c.seq.desc())
        )
        if uid is not None:
            asked_by = func.json_extract(event.c.data, "$.uid")
            query = query.where((job.c.uid == uid) | (asked_by == uid))
        found = [_audit_line(row) for row in self._rows(query.limit(most))]
        found.reverse()
        return found

    def _jobs(self, *conditions: Any) -> list[tuple[Job, Summary]]:
        table = tables.job
        columns = (table.c.id, table.c.record, table.c.summary)
        rows = [
            row._mapping
            for row in self._rows(select(*columns).where(*conditions).order_by(table.c.id))
        ]
        return [
            (
                row_codecs.read_column("job", row, "record", row_codecs.parse_job),
                row_codecs.read_column("job", row, "summary", Summary.from_json),
            )
            for row in rows
        ]

    def _rows_with(self, query: Any, column: Any, values: Sequence[Any]) -> list[Any]:
        """Return all rows of a query in which ``column`` has one of ``values``.

        The query is run in slices, because a statement's number of variables is limited.
        """
        rows: list[Any] = []
        for start in range(0, len(values), SLICE):
            rows += self._rows(query.where(column.in_(values[start : start + SLICE])))
        return rows

    def _rows(self, query: Any) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(query))


def _audit_line(row: Any) -> dict[str, Any]:
    data = row_codecs.read_column("job_event", row._mapping, "data", row_codecs.parse_mapping)
    results = {REFUSED: "refused", DONE: "done", _SUBMITTED: "done"}
    return {
        "seq": row.seq,
        "time": row.time,
        "user": data.get("user", row.owner),
        "operation": "submit" if row.kind == _SUBMITTED else data.get("operation"),
        "result": results[row.kind],
        "job": row.job,
        "text": row.text,
        "data": data,
    }


def _phase(row: Any) -> AllocationPhase:
    nodes = row_codecs.read_column("phase", row._mapping, "nodes", row_codecs.parse_names)
    values = (getattr(row, name) for name in AllocationPhase._fields[:-1])
    return AllocationPhase._make((*values, tuple(nodes)))


def _step(row: Any) -> dict[str, Any]:
    fields = ("job", "run", "name", "processors", "start", "end", "signal", "processor_s")
    values = {name: getattr(row, name) for name in fields}
    sizes = json.loads(row.sizes) or [[row.start, row.processors]]
    return {**values, "step": row.number, "exit_code": row.code, "sizes": sizes}

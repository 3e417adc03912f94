"""All writes to the database: fixed statements, to which each write adds the values of one row.

Writes with the same statement are executed in one call of the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy import insert as plain_insert
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.sql.base import Executable

from pliant.core.commands import Note
from pliant.core.model.jobs import Job
from pliant.core.model.nodes import Node
from pliant.core.model.usage import AllocationPhase, Usage
from pliant.core.state.json_records import job_to_record, node_to_record
from pliant.core.values.processors import count
from pliant.server.database import tables
from pliant.server.registry.job_program import Program, ProgramOfTask, Summary
from pliant.server.registry.mpi_worlds import World
from pliant.server.support.log_setup import escape_control


class Write(NamedTuple):
    """A statement and the values of one row."""

    statement: Executable
    values: Mapping[str, Any]


class StepOfScript(NamedTuple):
    """A step that has ended: a program that a script started with ``pliant run``.

    Times are in seconds since the epoch.
    """

    number: int
    name: str
    processors: int
    start: float
    end: float
    code: int
    signal: int
    #: Its sizes, each with the time from which it had this size.
    sizes: tuple[tuple[float, int], ...]
    processor_s: float


class RowVersion(NamedTuple):
    """The columns of a job's row that show whether another process has changed the row."""

    state: str
    run: int
    epoch: int

    @classmethod
    def of(cls, job: Job) -> RowVersion:
        """Return the version (state, run, epoch) that a job's row has once the job is stored."""
        return cls(job.state.value, job.run, job.epoch)


_JOB_COLUMNS = (
    "state",
    "start",
    "end",
    "exit_code",
    "signal",
    "run",
    "epoch",
    "processors",
    "record",
)
_INSERT_JOB = plain_insert(tables.job)
_UPDATE_JOB = (
    update(tables.job)
    .where(
        tables.job.c.id == bindparam("which"),
        tables.job.c.state == bindparam("was_state"),
        tables.job.c.run == bindparam("was_run"),
        tables.job.c.epoch == bindparam("was_epoch"),
    )
    .values({name: bindparam(f"new_{name}") for name in _JOB_COLUMNS})
)
_PUT_META = insert(tables.meta)
_PUT_META = _PUT_META.on_conflict_do_update(
    index_elements=["key"], set_={"value": _PUT_META.excluded.value}
)
_PUT_NODE = insert(tables.node)
_PUT_NODE = _PUT_NODE.on_conflict_do_update(
    index_elements=["name"],
    set_={
        name: _PUT_NODE.excluded[name] for name in ("cluster", "state", "first", "slots", "record")
    },
)
_DROP_NODE = delete(tables.node).where(tables.node.c.name == bindparam("which"))
#: Adds a line to the history.
INSERT_NOTE = plain_insert(tables.job_event)
_ADD_WORLD = insert(tables.world).on_conflict_do_nothing()
_ADD_EXIT = insert(tables.rank_exit).on_conflict_do_nothing()
_ADD_STEP = insert(tables.step).on_conflict_do_nothing()
_ADD_BARRIER = insert(tables.barrier).on_conflict_do_nothing()
_DROP_BARRIERS = delete(tables.barrier).where(tables.barrier.c.world == bindparam("which"))
_DROP_PASSED_BARRIERS = _DROP_BARRIERS.where(tables.barrier.c.sequence < bindparam("last"))
_INSERT_PHASE = plain_insert(tables.phase)
_PUT_USAGE = insert(tables.usage)
_PUT_USAGE = _PUT_USAGE.on_conflict_do_update(
    index_elements=["account", "user"],
    set_={name: _PUT_USAGE.excluded[name] for name in ("seconds", "at")},
)


#: The kind of event that records a refused request.
REFUSED = "request.refused"
#: The kind of the notes about requests that changed a job or a node.
DONE = "request.done"
_refusal = (tables.job_event.c.job.is_(None)) & (tables.job_event.c.kind == bindparam("refused"))
_DROP_REFUSALS = delete(tables.job_event).where(
    _refusal,
    tables.job_event.c.seq
    <= select(tables.job_event.c.seq)
    .where(_refusal)
    .order_by(tables.job_event.c.seq.desc())
    .limit(bindparam("one"))
    .offset(bindparam("kept"))
    .scalar_subquery(),
)

#: Statements that must find their row in the expected version.
COMPARING = frozenset({_UPDATE_JOB})


def _job_values(job: Job) -> dict[str, Any]:
    return {
        "state": job.state.value,
        "start": job.start,
        "end": job.end,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "run": job.run,
        "epoch": job.epoch,
        "processors": count(job.occupied),
        "record": json.dumps(job_to_record(job)),
    }


def insert_job(job: Job, program: Program, key: str | None) -> Write:
    """Return the statement that stores a newly accepted job.

    Args:
        job: the job.
        program: the program of the job.
        key: the idempotency key that the client sent with the submission, None if it sent none.
    """
    spec = job.spec
    return Write(
        _INSERT_JOB,
        {
            "id": spec.id,
            # Text in the database is UTF-8; the exact name is in the record.
            "name": escape_control(spec.name),
            "user": spec.user,
            "uid": spec.uid,
            "submit": spec.submit,
            "submit_key": key,
            "program": program.to_json(),
            "summary": program.summary().to_json(),
            "array": None,
            "last_task": spec.tasks.numbers.last if spec.tasks is not None else None,
            **_job_values(job),
        },
    )


def insert_task(job: Job, summary: Summary) -> Write:
    """Return the statement that stores a task which has become a job of its own.

    Its row names the array, because the task's program is derived from the array's program.

    Args:
        job: the job of the task.
        summary: output file, folder and command line of the task, for lists of jobs.
    """
    spec = job.spec
    return Write(
        _INSERT_JOB,
        {
            "id": spec.id,
            "name": escape_control(spec.name),
            "user": spec.user,
            "uid": spec.uid,
            "submit": spec.submit,
            "submit_key": None,
            "program": ProgramOfTask(spec.array, spec.task).to_json(),
            "summary": summary.to_json(),
            "array": spec.array,
            "last_task": None,
            **_job_values(job),
        },
    )


def update_job(job: Job, was: RowVersion) -> Write:
    """Return the update of a job's state, which fails unless the row has version ``was``."""
    values = {f"new_{name}": value for name, value in _job_values(job).items()}
    before = {f"was_{name}": value for name, value in was._asdict().items()}
    return Write(_UPDATE_JOB, {"which": job.id, **before, **values})


def put_node(node: Node) -> Write:
    """Return the statement that stores a node, new or changed."""
    return Write(
        _PUT_NODE,
        {
            "name": node.name,
            "cluster": node.cluster,
            "state": node.state.value,
            "first": node.first,
            "slots": node.slots,
            "record": json.dumps(node_to_record(node)),
        },
    )


def drop_node(name: str) -> Write:
    """Return the statement that deletes a node."""
    return Write(_DROP_NODE, {"which": name})


def put_meta(key: str, value: str) -> Write:
    """Return the statement that sets a value in the table ``meta``."""
    return Write(_PUT_META, {"key": key, "value": value})


def add_note(note: Note) -> Write:
    """Return the statement that adds one line to the history."""
    return Write(
        INSERT_NOTE,
        {
            "time": note.time,
            "job": note.job,
            "kind": note.kind,
            "text": escape_control(note.text),
            "data": json.dumps(dict(note.data), default=_plain),
        },
    )


def add_phase(phase: AllocationPhase) -> Write:
    """Return the statement that adds a phase of a job to the accounting.

    A phase is a time in which a job had the same processors.
    """
    return Write(_INSERT_PHASE, {**phase._asdict(), "nodes": json.dumps(phase.nodes)})


def put_usage(usage: Usage) -> Write:
    """Return the statement that stores the processor usage of a user."""
    values = {"account": usage.account, "user": usage.user}
    return Write(_PUT_USAGE, {**values, "seconds": usage.seconds, "at": usage.at})


def drop_requests(kind: str, kept: int) -> Write:
    """Return the statement that deletes old records of users' requests from the history.

    Args:
        kind: `REFUSED` for records of refused requests, `DONE` for those of changes.
        kept: the number of records of this kind to keep, the newest ones.
    """
    return Write(_DROP_REFUSALS, {"refused": kind, "one": 1, "kept": kept})


def add_world(world: World) -> Write:
    """Return the statement that stores a world, a set of ranks that is about to be launched."""
    return Write(
        _ADD_WORLD,
        {
            "name": world.name,
            "job": world.job,
            "run": world.run,
            "resize": world.resize,
            "epoch": world.epoch,
            "processors": json.dumps(world.processors),
        },
    )


def add_exit(world: str, rank: int, end: tuple[int, int, int, str, float]) -> Write:
    """Return the statement that stores how a rank of a world (ranks started together) ended.

    Args:
        world: the name of the world.
        rank: the rank in this world.
        end: processor, exit code, signal, reason, and the time in seconds since the epoch.
    """
    processor, code, signal, reason, at = end
    return Write(
        _ADD_EXIT,
        {
            "world": world,
            "rank": rank,
            "processor": processor,
            "code": code,
            "signal": signal,
            "reason": escape_control(reason),
            "at": at,
        },
    )


def add_step(world: str, step: StepOfScript) -> Write:
    """Return the statement that adds a step of a script to the accounting."""
    texts = {"name": escape_control(step.name), "sizes": json.dumps(step.sizes)}
    return Write(_ADD_STEP, {**step._asdict(), **texts, "world": world})


def add_barrier(world: str, sequence: int, pairs: Mapping[str, str]) -> Write:
    """Return the statement that stores a barrier that all nodes of a world have reached.

    Args:
        world: the name of the world, a set of ranks that were started together.
        sequence: the number of the barrier in its world.
        pairs: the PMI key-value pairs of all nodes.
    """
    return Write(
        _ADD_BARRIER, {"world": world, "sequence": sequence, "pairs": json.dumps(dict(pairs))}
    )


def drop_passed_barriers(world: str, last: int) -> Write:
    """Return the statement that deletes the barriers of a world with a number below ``last``.

    All nodes of the world (ranks started together) have reached barrier ``last``, so none asks for
    an earlier one any more.
    """
    return Write(_DROP_PASSED_BARRIERS, {"which": world, "last": last})


def drop_barriers(worlds: Sequence[World]) -> list[Write]:
    """Return the statements that delete all barriers of worlds (ranks started together).

    The ranks of these worlds have all exited.
    """
    return [Write(_DROP_BARRIERS, {"which": world.name}) for world in worlds if world.spans_nodes]


def _plain(value: object) -> object:
    """Convert a value of an event to one that JSON can represent."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    return str(value)

"""The Python client: ``Client().submit(...)`` and friends, with typed results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pliant.client.connection import TIMEOUT_S, Connection
from pliant.client.errors import RequestError
from pliant.client.submission import build_job
from pliant.client.waiting import FINAL_STATES, send_job, wait_for_end

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the server saw it when it was asked; times in seconds since the epoch."""

    id: int
    name: str = ""
    user: str = ""
    #: rigid, moldable, malleable, evolving.
    class_: str = ""
    type: str = ""
    state: str = ""
    reason: str = ""
    #: How many processors it holds now.
    processors: int = 0
    #: The nodes these are on.
    nodes: tuple[str, ...] = ()
    sizes: str = ""
    prefer: int | None = None
    submit: float | None = None
    start: float | None = None
    end: float | None = None
    exit_code: int | None = None
    #: The signal that ended it.
    signal: int | None = None
    #: Counts requeues.
    run: int = 0
    #: Versions the allocation.
    epoch: int = 0
    progress: Mapping[str, Any] | None = None
    stdout: str = ""
    cwd: str = ""
    command: Any = ""
    memory_bytes: int | None = None
    major_faults: int | None = None

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL_STATES


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the server saw it when it was asked."""

    name: str
    cluster: str = ""
    state: str = ""
    reason: str = ""
    slots: int = 0
    #: Slots that jobs hold.
    used: int = 0
    memory_bytes: int | None = None
    idle_memory_bytes: int | None = None
    jobs: tuple[int, ...] = ()
    address: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, as the job database has it."""

    seq: int
    time: float
    kind: str
    job: int | None = None
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job waits or has the size it has: for people, and as facts for programs."""

    text: tuple[str, ...]
    facts: Mapping[str, Any]


class Client:
    """A connection to the server of a cluster; use it from one thread at a time.

    Every method raises ``NoServerError`` without a server and ``RequestError`` when the server
    refuses; both are in ``pliant.client.errors``.
    """

    def __init__(self, run_dir: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._link = Connection(run_dir, timeout_s=timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def submit(self, *argv: str, sizes: str | int = "1", **options: Any) -> int:
        """Submit a program with its arguments and return the job's id.

        Options are those of `pliant.client.submission.build_job`: ``prefer``, ``type``, ``name``,
        ``stdin``, ``stdout``, ``stderr``, ``chdir``, ``env``, ``hold``, ``time_limit_s``,
        ``estimate_s``.
        """
        job = build_job(argv, sizes=str(sizes), **options)
        return send_job(self._link, job)

    def jobs(self, ids: Iterable[int] | None = None, *, ended: bool = False) -> list[Job]:
        """Return the named jobs, or all that have not ended; ``ended``: of the last hour, too."""
        named = None if ids is None else list(ids)
        answer = self._link.request("jobs", ids=named, all=ended or named is not None)
        return [_record(Job, record) for record in answer["jobs"]]

    def job(self, number: int) -> Job:
        """Return one job.

        Raises:
            RequestError: there is none with this id (kind ``not_found``).
        """
        for job in self.jobs([number]):
            return job
        raise RequestError(f"there is no job {number}", kind="not_found", field="id")

    def nodes(self) -> list[Node]:
        """Return all nodes."""
        return [_record(Node, record) for record in self._link.request("nodes")["nodes"]]

    def cancel(self, *ids: int) -> None:
        """Cancel jobs.

        Raises:
            RequestError: one could not be cancelled; the others were.
        """
        results = self._link.request("cancel", ids=list(ids))["results"]
        faults = [result for result in results if not result.get("ok")]
        if faults:
            raise RequestError(
                "; ".join(f"job {fault.get('id')}: {_message(fault)}" for fault in faults)
            )

    def hold(self, number: int) -> None:
        """Keep a waiting job from starting."""
        self._link.request("hold", id=number)

    def release(self, number: int) -> None:
        """Let a held job start."""
        self._link.request("release", id=number)

    def resize(self, number: int, size: int, *, release: Sequence[str] = ()) -> str:
        """Offer a running job another size and return what the server says to it.

        ``release`` names what to give back when it shrinks: ``"n2"``, ``"n1/0"``.
        """
        answer = self._link.request("resize", id=number, size=size, release=list(release))
        return str(answer.get("message", ""))

    def why(self, number: int) -> Why:
        """Return why a job waits or has the size it has."""
        answer = self._link.request("why", id=number)
        return Why(tuple(answer["text"]), answer.get("facts") or {})

    def history(self, number: int | None = None) -> list[Event]:
        """Return what happened to a job, or everything that happened."""
        return [_record(Event, e) for e in self._link.request("history", id=number)["events"]]

    def wait(self, number: int) -> Job:
        """Return a job when it has ended."""
        return _record(Job, wait_for_end(self._link, number))

    def drain(self, node: str, reason: str = "") -> None:
        """Keep new work off a node."""
        self._link.request("drain", node=node, reason=reason)

    def resume(self, node: str) -> None:
        """Let a drained node take work again."""
        self._link.request("resume", node=node)

    def remove(self, node: str) -> None:
        """Take a node that will not come back off the list; its controller must have stopped."""
        self._link.request("remove", node=node)


def _record(kind: type[Record], data: Mapping[str, Any]) -> Record:
    """Return a typed record; what a newer server says more is left out."""
    values = {}
    for spec in fields(kind):  # type: ignore[arg-type]
        value = data.get(spec.name.rstrip("_"))
        if value is not None:
            values[spec.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def _message(fault: Mapping[str, Any]) -> str:
    error = fault.get("error") or "not cancelled"
    return str(error.get("message") if isinstance(error, dict) else error)

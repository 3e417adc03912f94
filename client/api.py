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
    #: How many processors it runs on now.
    processors: int = 0
    #: The same with those that are reserved for an offer of growth or not given back yet.
    held: int = 0
    #: The nodes these are on.
    nodes: tuple[str, ...] = ()
    #: ``keep`` or ``stop-after=SECONDS``.
    when_cut_off: str = "keep"
    sizes: str = ""
    prefer: int | None = None
    #: Seconds after which it is ended; None: never.
    time_limit_s: float | None = None
    estimate_s: float | None = None
    #: As its user stated it: ``linear``, ``none``, ``amdahl:0.9``, ...
    speedup: str = "linear"
    #: ``gain`` or ``always``; None: as the server's configuration says.
    grow_if: str | None = None
    #: Named resources that it uses while it runs, such as ``matlab=1/proc``.
    resources: tuple[str, ...] = ()
    submit: float | None = None
    start: float | None = None
    end: float | None = None
    exit_code: int | None = None
    #: The signal that ended it.
    signal: int | None = None
    #: A higher one goes first under strategies that order the queue by it.
    priority: int = 0
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
    #: When it must have ended; None: no deadline was agreed on.
    deadline: float | None = None
    #: The contract: ``deadline_s`` (from ``submit``), ``profit``, ``soft``, ``penalty``.
    contract: Mapping[str, float] | None = None
    #: What the strategy promised when it accepted the job; empty: nothing.
    promise: str = ""
    #: When the strategy promised to start it.
    promised_start: float | None = None
    #: When it ends by its estimate, or by the promise; known of jobs with a contract.
    expected_end: float | None = None

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


@dataclass(frozen=True, slots=True)
class Availability:
    """What would become of a job if it were submitted, as the strategy in force says."""

    #: None: the strategy cannot say.
    accepted: bool | None = None
    #: When it would start, seconds since the epoch; None: not known.
    start: float | None = None
    #: On how many processors; 0: not known.
    processors: int = 0
    #: The profit that other jobs lose by it; None: the strategy knows no prices.
    price: float | None = None
    reason: str = ""
    strategy: str = ""


class Client:
    """A connection to the server of a cluster; use it from one thread at a time.

    Every method raises ``NoServerError`` without a server, ``LostServerError``, a kind of it, if
    the server leaves or is silent after it was asked, and ``RequestError`` when it refuses: all in
    ``pliant.client.errors``, their words in docs/troubleshooting.md. A job is named by its id.
    """

    def __init__(self, run_dir: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Name the cluster; nothing is opened before the first call.

        Args:
            run_dir: the folder of the server's socket; None: ``$PLIANT_RUN_DIR``, or ``run`` in
                the state folder.
            timeout_s: seconds to wait for an answer; ``wait`` and ``submit`` are more patient.
        """
        self._link = Connection(run_dir, timeout_s=timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def submit(self, *argv: str, sizes: str | int = "1", **options: Any) -> int:
        """Submit a program with its arguments and return the job's id, once that is durable.

        Args:
            argv: the program, looked for in PATH, and its arguments.
            sizes: numbers of processors that it may have, in the size grammar.
            options: those of `pliant.client.submission.build_job`: ``prefer``, ``type``, ``name``,
                ``stdin``, ``stdout``, ``stderr``, ``open_mode`` (``truncate`` or ``append``),
                ``chdir``, ``env``, ``hold``, ``requeue``
                (when a node is lost: True, False; None: only if it can change its size and has a
                checkpoint), ``when_cut_off`` (``keep`` or ``stop-after=30s``),
                ``time_limit_s`` and ``estimate_s``, both in seconds, ``speedup``, ``grow_if``
                (``gain`` or ``always``), ``priority`` (a whole number),
                ``resources`` (such as ``["matlab=1/proc"]``),
                ``deadline_s`` (seconds from now) or ``deadline_at`` (seconds since the epoch),
                ``profit`` (a number, or a profit function such as
                ``"1000:soft=0.25:penalty=50"``).

        Raises:
            SubmitError: a check of program, files or environment failed; names the field.
            UsageError: the sizes are not in the grammar, or there is no program.
            RequestError: the server refuses the job.
        """
        known = build_job.__kwdefaults__ or {}
        for name in options:
            if name not in known:
                raise TypeError(
                    f"submit: there is no option {name!r}; there are: {', '.join(known)}"
                )
        job = build_job(argv, sizes=str(sizes), **options)
        return send_job(self._link, job)

    def query(self, *argv: str, sizes: str | int = "1", **options: Any) -> Availability:
        """Ask what would become of a job if it were submitted now; nothing is submitted.

        Args:
            argv: as for ``submit``.
            sizes: as for ``submit``.
            options: as for ``submit``.

        Raises:
            SubmitError: a check of program, files or environment failed; names the field.
            UsageError: the sizes are not in the grammar, or there is no program.
            RequestError: the job is malformed, or too many others ask.
        """
        job = build_job(argv, sizes=str(sizes), **options)
        return _record(Availability, self._link.request("query", job=job))

    def jobs(self, ids: Iterable[int] | None = None, *, ended: bool = False) -> list[Job]:
        """Return jobs, in order of their ids.

        Args:
            ids: those wanted; None: all that have not ended. An id that nobody has is left out.
            ended: without ``ids``: those that ended within the last hour, too.
        """
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
        """Return all nodes that have registered, in order of their processors."""
        return [_record(Node, record) for record in self._link.request("nodes")["nodes"]]

    def cancel(self, *ids: int) -> None:
        """Cancel jobs: those that wait at once, those that run are ended.

        Raises:
            RequestError: some could not be cancelled, and the text names each; the others were.
        """
        results = self._link.request("cancel", ids=list(ids))["results"]
        faults = [result for result in results if not result.get("ok")]
        if faults:
            raise RequestError(
                "; ".join(f"job {fault.get('id')}: {_message(fault)}" for fault in faults)
            )

    def hold(self, number: int) -> None:
        """Keep a waiting job from starting.

        Raises:
            RequestError: it does not wait.
        """
        self._link.request("hold", id=number)

    def release(self, number: int) -> None:
        """Let a held job start.

        Raises:
            RequestError: it is not held.
        """
        self._link.request("release", id=number)

    def set_priority(self, number: int, priority: int) -> str:
        """Give a job that has not ended another priority; returns the server's words.

        Args:
            number: the job.
            priority: a whole number, a higher one goes first. Only an operator may raise it.

        Raises:
            RequestError: it has ended, or the priority may not be raised, or is out of bounds.
        """
        return str(self._link.request("priority", id=number, priority=priority).get("message", ""))

    def suspend(self, number: int) -> str:
        """Have a running job save itself at its next safe point and end.

        Returns:
            What the server says to it, for people; the job is SUSPENDED when it has ended.

        Raises:
            RequestError: it does not run, cannot save itself, or is being resized.
        """
        return str(self._link.request("suspend", id=number).get("message", ""))

    def resume_job(self, number: int) -> str:
        """Let a suspended job go on, at any of its sizes; returns the server's words.

        Raises:
            RequestError: it is not suspended, or not yet.
        """
        return str(self._link.request("resume_job", id=number).get("message", ""))

    def requeue(self, number: int) -> str:
        """End a job and start it again, from its last checkpoint if it has one.

        Returns:
            What the server says to it, for people.

        Raises:
            RequestError: it has not started, or has ended.
        """
        return str(self._link.request("requeue", id=number).get("message", ""))

    def resize(self, number: int, size: int, *, release: Sequence[str] = ()) -> str:
        """Offer a running job another size; returns at once.

        Args:
            number: the job.
            size: processors that it should have, and keep; 0: what the strategy gives.
            release: what to give back when it shrinks: ``"n2"``, all on a node, ``"n1/0"``, a slot.

        Returns:
            What the server says to it, for people; ``history`` tells what came of it.

        Raises:
            RequestError: the job cannot be resized, or not now, or not to this size.
        """
        answer = self._link.request("resize", id=number, size=size, release=list(release))
        return str(answer.get("message", ""))

    def why(self, number: int) -> Why:
        """Return why a job waits or has the size it has.

        Raises:
            RequestError: there is none with this id (kind ``not_found``).
        """
        answer = self._link.request("why", id=number)
        return Why(tuple(answer["text"]), answer.get("facts") or {})

    def history(self, number: int | None = None) -> list[Event]:
        """Return what happened to a job, or everything that happened; the oldest first.

        Raises:
            RequestError: there is no such job (kind ``not_found``).
        """
        return [_record(Event, e) for e in self._link.request("history", id=number)["events"]]

    def refusals(self) -> list[Event]:
        """Return requests that were refused, oldest first: yours, or all to an operator."""
        return [_record(Event, e) for e in self._link.request("refusals")["events"]]

    def wait(self, number: int) -> Job:
        """Return a job when it has ended, however long that takes, over restarts of the server.

        Raises:
            RequestError: there is none with this id (kind ``not_found``).
            NoServerError: there has been no server for a minute.
        """
        return _record(Job, wait_for_end(self._link, number))

    def drain(self, node: str, reason: str = "") -> None:
        """Keep new work off a node; malleable jobs are asked to leave it.

        Args:
            node: its name.
            reason: for people.

        Raises:
            RequestError: there is no such node, or an operator only may do it.
        """
        self._link.request("drain", node=node, reason=reason)

    def resume(self, node: str) -> None:
        """Let a drained node take work again.

        Raises:
            RequestError: there is no such node, or an operator only may do it.
        """
        self._link.request("resume", node=node)

    def remove(self, node: str) -> None:
        """Take a node that will not come back off the list.

        Raises:
            RequestError: there is no such node, its controller is connected, or jobs hold it.
        """
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

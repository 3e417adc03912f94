"""The Python client: `Client`, and the values that its methods return.

Programs import these names from ``pliant.client``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pliant.client.client_errors import RequestError
from pliant.client.connection import TIMEOUT_S, Connection
from pliant.client.submission.build_job import build_job
from pliant.client.waiting import FINAL_STATES, follow_changes, send_job, wait_for_end

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Job:
    """A job at the time of the request; times are in seconds since the epoch."""

    id: int
    name: str = ""
    user: str = ""
    #: rigid, moldable, malleable, evolving.
    class_: str = ""
    type: str = ""
    state: str = ""
    reason: str = ""
    #: Number of processors on which it runs.
    processors: int = 0
    #: `processors`, plus those reserved for a growth, plus those not yet released by a shrink.
    held: int = 0
    #: The nodes of these processors.
    nodes: tuple[str, ...] = ()
    #: ``keep`` or ``stop-after=SECONDS``.
    when_cut_off: str = "keep"
    sizes: str = ""
    prefer: int | None = None
    #: Seconds after which it is ended, or None if there is no limit.
    time_limit_s: float | None = None
    estimate_s: float | None = None
    #: As given at submission: ``linear``, ``none``, ``amdahl:0.9``, ...
    speedup: str = "linear"
    #: ``gain`` or ``always``, or None for the default of the server's configuration.
    grow_if: str | None = None
    #: Named resources that it uses while it runs, such as ``matlab=1/proc``.
    resources: tuple[str, ...] = ()
    submit: float | None = None
    #: Its earliest start, if ``begin_s`` or ``begin_at`` was given.
    begin: float | None = None
    start: float | None = None
    end: float | None = None
    exit_code: int | None = None
    #: The signal that ended it.
    signal: int | None = None
    #: Strategies that use priorities start jobs with higher ones first.
    priority: int = 0
    #: Number of times the job was requeued.
    run: int = 0
    #: Version number of the allocation: each resize increases it.
    epoch: int = 0
    progress: Mapping[str, Any] | None = None
    stdout: str = ""
    cwd: str = ""
    command: Any = ""
    memory_bytes: int | None = None
    major_faults: int | None = None
    #: When it must have ended, or None without a deadline.
    deadline: float | None = None
    #: The contract: ``deadline_s`` (from ``submit``), ``profit``, ``soft``, ``penalty``.
    contract: Mapping[str, float] | None = None
    #: What the strategy promised when it accepted the job; empty if nothing.
    promise: str = ""
    #: When the strategy promised to start it.
    promised_start: float | None = None
    #: When it should end by its estimate or the promise; only for jobs with a contract.
    expected_end: float | None = None

    @property
    def final(self) -> bool:
        """Return whether the job has ended."""
        return self.state in FINAL_STATES


@dataclass(frozen=True, slots=True)
class Node:
    """A node at the time of the request."""

    name: str
    cluster: str = ""
    state: str = ""
    reason: str = ""
    slots: int = 0
    #: Number of slots held by jobs.
    used: int = 0
    memory_bytes: int | None = None
    idle_memory_bytes: int | None = None
    #: Generic resources with the number of each, and properties.
    gres: Mapping[str, int] = field(default_factory=dict)
    properties: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    address: str = ""
    #: What enforces the share of each job there: ``cpus``, ``memory``, ``processes``, ``devices``.
    containment: Mapping[str, str] = field(default_factory=dict)
    #: ``shared`` if jobs there can use the folder of checkpoints, or why they cannot; empty if the
    #: node has not said.
    checkpoints: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the history in the job database."""

    seq: int
    time: float
    kind: str
    job: int | None = None
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job waits or has its size: as sentences, and as facts for programs."""

    text: tuple[str, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Availability:
    """The strategy's answer to a query: what it would do with a job if it were submitted."""

    #: None if the strategy cannot say.
    accepted: bool | None = None
    #: When it would start, in seconds since the epoch, or None if not known.
    start: float | None = None
    #: Number of processors at the start; 0 if not known.
    processors: int = 0
    #: The profit that other jobs would lose, or None if the strategy has no prices.
    price: float | None = None
    reason: str = ""
    strategy: str = ""


class Client:
    """A connection to the server of a cluster; use it from one thread at a time.

    ::

        with Client() as client:
            number = client.submit("./solver", sizes="1-8")
            print(client.wait(number).state)

    Every method raises `NoServerError` if there is no server, its subclass `LostServerError` if
    the server leaves or is silent after the request, and `RequestError` if the server refuses. All
    errors are listed in docs/errors.md. A job is named by its id.
    """

    def __init__(self, run_dir: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        """Choose the cluster; the connection is opened by the first call.

        Args:
            run_dir: the folder of the server's socket; by default ``$PLIANT_RUN_DIR``, or ``run``
                in the state folder.
            timeout_s: seconds to wait for an answer; ``wait`` and ``submit`` wait longer.
        """
        self._link = Connection(run_dir, timeout_s=timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the server; jobs are not affected."""
        self._link.close()

    def submit(self, *argv: str, sizes: str | int = "1", **options: Any) -> int:
        """Submit a program with its arguments; return the job's id once it is stored on disk.

        Args:
            argv: the program, searched in PATH, and its arguments.
            sizes: numbers of processors that the job may have, such as ``4`` or ``"1-8:pow2"``.
            options: as of ``jobsub``, whose help explains them:

                - the job: ``name``, ``type``, ``account``, ``priority`` (a whole number), ``hold``;
                - files: ``chdir``, ``stdin``, ``stdout``, ``stderr``, ``open_mode`` (``truncate``
                  or ``append``), ``env``;
                - sizes: ``prefer``, ``speedup``, ``grow_if`` (``gain`` or ``always``);
                - times: ``time_limit_s`` and ``estimate_s`` in seconds, ``deadline_s`` (seconds
                  from now) or ``deadline_at`` (seconds since the epoch), ``begin_s`` or
                  ``begin_at`` (its earliest start, in the same units), ``profit`` (a number, or a
                  profit function such as ``"1000:soft=0.25:penalty=50"``);
                - nodes: ``constraint``, ``nodelist`` and ``exclude`` (such as ``"n[01-16]"``),
                  ``bind`` (ranks to CPUs: ``rank``, ``node`` or ``none``), ``components`` (the
                  processors of each component, such as ``[4, 2]``, instead of ``sizes``);
                - for each process: ``mem_per_cpu`` (``"4G"``, or bytes), ``gpus``, ``gres`` (such
                  as ``["fpga:1"]``); for the job: ``resources`` (such as ``["matlab=1/proc"]``);
                - failures: ``requeue`` (True or False; None requeues the job after the loss of a
                  node only if it can change its size and has a checkpoint), ``when_cut_off``
                  (``keep`` or ``stop-after=30s``).

        Raises:
            SubmitError: a check of program, files or environment failed; ``field`` names it.
            UsageError: the sizes are malformed, or there is no program.
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
        """Ask what the strategy would do with a job now, without submitting it.

        Args:
            argv: as for ``submit``.
            sizes: as for ``submit``.
            options: as for ``submit``.

        Raises:
            SubmitError: a check of program, files or environment failed; ``field`` names it.
            UsageError: the sizes are malformed, or there is no program.
            RequestError: the job is malformed, or there are too many queries at this time.
        """
        job = build_job(argv, sizes=str(sizes), **options)
        return _record(Availability, self._link.request("query", job=job))

    def jobs(self, ids: Iterable[int] | None = None, *, ended: bool = False) -> list[Job]:
        """Return jobs in the order of their ids.

        Args:
            ids: the jobs to return, or None for all that have not ended. Unknown ids are skipped.
            ended: whether to add, without ``ids``, the jobs that ended within the last hour.
        """
        named = None if ids is None else list(ids)
        answer = self._link.request("jobs", ids=named, all=ended or named is not None)
        return [_record(Job, record) for record in answer["jobs"]]

    def job(self, number: int) -> Job:
        """Return one job.

        Raises:
            RequestError: there is no job with this id (kind ``not_found``).
        """
        for job in self.jobs([number]):
            return job
        raise RequestError(f"there is no job {number}", kind="not_found", field="id")

    def nodes(self) -> list[Node]:
        """Return all nodes that have registered, in order of their processors."""
        return [_record(Node, record) for record in self._link.request("nodes")["nodes"]]

    def cancel(self, *ids: int) -> None:
        """Cancel waiting jobs, and end running ones.

        Raises:
            RequestError: some jobs could not be cancelled; the text names each. All other jobs
                were cancelled.
        """
        results = self._link.request("cancel", ids=list(ids))["results"]
        faults = [result for result in results if not result.get("ok")]
        if faults:
            raise RequestError(
                "; ".join(f"job {fault.get('id')}: {_message(fault)}" for fault in faults)
            )

    def hold(self, number: int) -> None:
        """Hold a waiting job, so that it does not start.

        Raises:
            RequestError: the job does not wait.
        """
        self._link.request("hold", id=number)

    def release(self, number: int) -> None:
        """Release a held job, so that it can start.

        Raises:
            RequestError: the job is not held.
        """
        self._link.request("release", id=number)

    def set_priority(self, number: int, priority: int) -> str:
        """Change the priority of a job that has not ended; return the server's message.

        Args:
            number: the job.
            priority: jobs with a higher priority start first. Only an operator may raise it.

        Raises:
            RequestError: the job has ended, or you may not raise its priority, or the new priority
            is out of bounds.
        """
        return str(self._link.request("priority", id=number, priority=priority).get("message", ""))

    def suspend(self, number: int) -> str:
        """Make a running job write a checkpoint at its next safe point and then end.

        Returns:
            The server's message. The job is SUSPENDED when its processes have ended.

        Raises:
            RequestError: the job does not run, has no checkpoints, or is being resized.
        """
        return str(self._link.request("suspend", id=number).get("message", ""))

    def resume_job(self, number: int) -> str:
        """Let a suspended job continue, at any of its sizes; return the server's message.

        Raises:
            RequestError: the job is not suspended, or its processes have not ended yet.
        """
        return str(self._link.request("resume_job", id=number).get("message", ""))

    def requeue(self, number: int) -> str:
        """End a job and start it again, from its last checkpoint if it has one.

        Returns:
            The server's message.

        Raises:
            RequestError: the job has not started, or has ended.
        """
        return str(self._link.request("requeue", id=number).get("message", ""))

    def resize(self, number: int, size: int, *, release: Sequence[str] = ()) -> str:
        """Offer a running job another size, and return without waiting for the resize.

        Args:
            number: the job.
            size: processors that the job should have and keep; 0 lets the strategy choose again.
            release: what to release when it shrinks: a node (``"n2"``) or a slot (``"n1/0"``).

        Returns:
            The server's message; ``history`` shows the outcome.

        Raises:
            RequestError: the job cannot be resized, or not now, or not to this size.
        """
        answer = self._link.request("resize", id=number, size=size, release=list(release))
        return str(answer.get("message", ""))

    def why(self, number: int) -> Why:
        """Return why a job waits or has its size.

        Raises:
            RequestError: there is no job with this id (kind ``not_found``).
        """
        answer = self._link.request("why", id=number)
        return Why(tuple(answer["text"]), answer.get("facts") or {})

    def history(self, number: int | None = None) -> list[Event]:
        """Return the events of a job, or of all jobs and nodes, oldest first.

        Raises:
            RequestError: there is no such job (kind ``not_found``).
        """
        return [_record(Event, e) for e in self._link.request("history", id=number)["events"]]

    def events(self, number: int | None = None, *, after: int | None = None) -> Iterator[Event]:
        """Yield events as they happen, without an end, also after a restart of the server.

        Args:
            number: the job, or None for all jobs and nodes that you may see.
            after: the ``seq`` of an event: begin with the next one; None for new events only.

        Raises:
            RequestError: there is no such job (kind ``not_found``), or you may not see its events.
            NoServerError: there has been no server for a minute.
        """
        with Connection(self._link.directory) as link:
            for message in follow_changes(link, id=number, after=after, events_only=True):
                for event in message.get("events", ()):
                    yield _record(Event, event)

    def refusals(self) -> list[Event]:
        """Return your refused requests, oldest first; an operator gets those of all users."""
        return [_record(Event, e) for e in self._link.request("refusals")["events"]]

    def wait(self, number: int) -> Job:
        """Wait until a job has ended, even if the server restarts meanwhile, and return the job.

        Raises:
            RequestError: there is no job with this id (kind ``not_found``).
            NoServerError: there has been no server for a minute.
        """
        return _record(Job, wait_for_end(self._link, number))

    def drain(self, node: str, reason: str = "") -> None:
        """Start no new jobs on a node, and ask malleable jobs to leave it.

        Args:
            node: its name.
            reason: shown by ``nodestat``.

        Raises:
            RequestError: there is no such node, or only an operator may do it.
        """
        self._link.request("drain", node=node, reason=reason)

    def resume(self, node: str) -> None:
        """Let jobs start on a drained node again.

        Raises:
            RequestError: there is no such node, or only an operator may do it.
        """
        self._link.request("resume", node=node)

    def remove(self, node: str) -> None:
        """Remove a node from the server's list, because its host will not be used again.

        Raises:
            RequestError: there is no such node, its controller is connected, or jobs hold it.
        """
        self._link.request("remove", node=node)


def _record(kind: type[Record], data: Mapping[str, Any]) -> Record:
    """Return a typed record of a server's answer; unknown fields of a newer server are ignored."""
    values = {}
    for spec in fields(kind):  # type: ignore[arg-type]
        value = data.get(spec.name.rstrip("_"))
        if value is not None:
            values[spec.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def _message(fault: Mapping[str, Any]) -> str:
    error = fault.get("error") or "not cancelled"
    return str(error.get("message") if isinstance(error, dict) else error)

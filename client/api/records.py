"""The values that the methods of the Python client return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pliant.client.reconnecting import FINAL_STATES

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Job:
    """A job at the time of the request; times are in seconds since the epoch."""

    #: Its number. The jobs of an array's tasks have numbers of their own.
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
    #: Of a task: the number of its array, and the task's number in it.
    array_job: int | None = None
    array_task: int | None = None
    #: Of an array: those of its tasks that have not become jobs yet, as in ``"3-1000%50"``.
    tasks: str = ""
    #: Of an array: ``tasks`` as submitted, and how many of them (``count``) are ``pending``,
    #: ``running``, ``ended``, ``failed`` (of those that ended) and ``cancelled``.
    array: Mapping[str, Any] | None = None

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
    #: Whether the strategy reserves it for certain jobs, and why; empty if not.
    reservation: str = ""
    #: Memory load: ``memory_bytes`` that jobs may use, their ``demand_bytes``, ``idle_bytes``,
    #: ``major_faults_per_s``, ``pressure_percent``, and ``age_s``, ``stale``. None if not measured.
    load: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the history in the job database."""

    seq: int
    time: float
    kind: str
    job: int | None = None
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    #: Of a task of an array: the number of the array, and the task's number in it.
    array_job: int | None = None
    array_task: int | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """The reasons why a job waits, or why it has its present size, as sentences and as data."""

    text: tuple[str, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Availability:
    """The strategy's answer to a query: whether and when a job would start if it were submitted."""

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


@dataclass(frozen=True, slots=True)
class Phase:
    """A period in which a job had the same processors."""

    #: 1 for the first run of the job; each requeue begins another run.
    run: int = 1
    #: Seconds since the epoch.
    start: float = 0.0
    #: None if it has not ended.
    end: float | None = None
    processors: int = 0
    nodes: tuple[str, ...] = ()
    #: Processors times seconds.
    processor_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of processors by a job, from its first start until now or its end."""

    #: Seconds from the submission to the start, or until now or the end if it has not started.
    wait_s: float = 0.0
    #: Seconds in which it had processors.
    run_s: float = 0.0
    #: Processors times seconds.
    processor_s: float = 0.0
    #: Work per processor-second by the speedup model of the job: 1 for linear speedup; None if it
    #: has used no processors.
    efficiency: float | None = None
    #: Its phases in order of time.
    phases: tuple[Phase, ...] = ()


def to_record(kind: type[Record], data: Mapping[str, Any]) -> Record:
    """Return a server's answer as a record of type ``kind``; unknown fields are ignored.

    A newer server may send fields that this client does not know.
    """
    values = {}
    for spec in fields(kind):  # type: ignore[arg-type]
        value = data.get(spec.name.rstrip("_"))
        if value is not None:
            values[spec.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)

"""Check a submission: types, ranges and sizes. Every error names its field."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from pliant.core.arrays.task_numbers import LARGEST_ARRAY_SIZE, ArrayTasks
from pliant.core.model.jobs import MAX_PRIORITY, MIN_PRIORITY, JobSpec, JobType
from pliant.core.model.views_and_plans import NodeView
from pliant.core.model.warning_signal import WarningSignal
from pliant.core.support.input_limits import (
    MAX_ARGUMENT_BYTES,
    MAX_DURATION_S,
    MAX_LOAD_INTERVAL_S,
    MIN_LOAD_INTERVAL_S,
)
from pliant.core.values.dependencies import Dependency
from pliant.core.values.ids import JobId
from pliant.core.values.lost_contact_policy import KEEP, parse_isolation_policy
from pliant.core.values.negotiation_policy import GrowIf
from pliant.core.values.node_needs import (
    NodeNeeds,
)
from pliant.core.values.profit_contract import Contract, parse_profit
from pliant.core.values.resources import Need
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup, SpeedupError, parse_speedup
from pliant.protos.staging.environment_variables import STAGE_ARCHIVE, STAGE_OUTPUTS
from pliant.server.registry.job_program import (
    JOB_VARIABLES,
    PLACE_MARKS,
    TASK_MARKS,
    Program,
    expand,
    has_mark,
    job_marks,
)
from pliant.server.support.user_request_error import UserRequestError
from pliant.server.user_requests.request_fields import error_of_msgspec, field_with_lone_surrogate
from pliant.server.user_requests.submission.condition_checks import (
    check_array,
    check_begin,
    check_comment,
    check_components,
    check_dependencies,
    check_notify,
    check_warning,
    contract_from_begin,
)
from pliant.server.user_requests.submission.requirement_checks import (
    check_node_needs,
    check_resources,
    check_sizes,
)

#: All arguments and variables together: the limit of execve, less some space for Pliant's own.
MAX_TOTAL_BYTES = 2_000_000
MAX_NAME_LENGTH = 4096
MAX_SPEEDUP_LENGTH = 4096


#: The output file of a job that names none: of a single job, and of each task of an array.
DEFAULT_OUTPUT = ("pliant-%j.out", "pliant-%A_%a.out")


class StageRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The field ``stage`` of a submission: which uploaded archive has the job's input files.

    It has the archive's id, size and digest, and patterns of the outputs to return.
    """

    upload: str
    size: int
    #: Hexadecimal.
    sha256: str
    #: Patterns of outputs to return; empty for all new and changed files.
    out: list[str] = []


class JobRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A submission as the client sends it."""

    argv: list[str]
    cwd: str
    name: str = ""
    env: dict[str, str] = {}
    type: Literal["mpi", "uni", "script"] = "mpi"
    sizes: str = "1"
    prefer: int | None = None
    stdin: str = ""
    #: Empty for the default.
    stdout: str = ""
    stderr: str = ""
    open_mode: Literal["append", "truncate"] = "truncate"
    umask: int = 0o022
    #: Seconds between rows of the record of its load; None if the load is not recorded.
    record_load_s: float | None = None
    #: How its ranks are bound to CPUs, see `StartWorld.bind` in ``node.proto``.
    bind: Literal["rank", "node", "none"] = "rank"
    hold: bool = False
    requeue: bool | None = None
    #: ``keep``, or ``stop-after=SECONDS``.
    when_cut_off: str = KEEP
    time_limit_s: float | None = None
    estimate_s: float | None = None
    #: Deadline of its end: seconds from its submission, or seconds since the epoch.
    deadline_s: float | None = None
    deadline_at: float | None = None
    #: What its end is worth (``core.contract.parse_profit``); needs a deadline.
    profit: str = ""
    #: Its speedup model, as in `pliant.core.values.speedup`.
    speedup: str = "linear"
    #: Which growth offers it accepts; None for the policy of the server.
    grow_if: Literal["gain", "always"] | None = None
    #: A higher one goes first under strategies that order the queue by it.
    priority: int = 0
    #: Named resources that it needs: ``NAME=N`` for the job, ``NAME=N/proc`` for each processor.
    resources: list[str] = []
    #: Memory in bytes, and generic resources, that each process needs on its node.
    memory_bytes: int = 0
    gres: dict[str, int] = {}
    #: Properties that its nodes must have; nodes on which alone it may run, or may not run.
    constraint: str = ""
    nodelist: str = ""
    exclude: str = ""
    #: The account that it is charged to; empty for the user's own.
    account: str = ""
    #: Other jobs that have to start or to end first, such as ``afterok:17`` (`core/values`).
    dependency: str = ""
    #: When it may start at the earliest: seconds from its submission, or seconds since the epoch.
    begin_s: float | None = None
    begin_at: float | None = None
    #: The signal before its time limit, and how many seconds before: ``USR1@60``.
    signal: str = ""
    #: A remark for people.
    comment: str = ""
    #: Where its user is told about events, a mail address or a URL, and about which: ``end,fail``.
    notify: str = ""
    notify_on: str = ""
    #: The processors of its components, each of which runs in one cluster.
    components: list[int] = []
    #: The files that its nodes get; None if they share its folder.
    stage: StageRequest | None = None
    #: The tasks of an array, such as ``1-1000%50``; empty for a single job.
    array: str = ""
    #: The client's key of this submission: a second one with the same key gives the same job.
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission that passed every check, with its parsed values."""

    request: JobRequest
    sizes: Sizes
    contract: Contract | None = None
    speedup: Speedup = LINEAR
    resources: tuple[Need, ...] = ()
    node_needs: NodeNeeds | None = None
    #: The account that is charged.
    account: str = ""
    dependencies: tuple[Dependency, ...] = ()
    warning: WarningSignal | None = None
    #: Seconds from its submission until it may start.
    begin_s: float | None = None
    #: The tasks of an array. None for a single job.
    tasks: ArrayTasks | None = None
    #: Of which events its user is told, and where. Empty for none.
    notify: str = ""

    def spec(self, job: JobId, user: str, uid: int, now: float) -> JobSpec:
        """Return what the core must know about the job.

        Args:
            job: the number of the job.
            user: the name of its owner.
            uid: the user id of its owner.
            now: the time of the submission, in seconds since the epoch.
        """
        request = self.request
        return JobSpec(
            id=job,
            name=request.name or os.path.basename(request.argv[0]),
            user=user,
            type=JobType(request.type),
            sizes=self.sizes,
            submit=now,
            uid=uid,
            estimate_s=request.estimate_s,
            time_limit_s=request.time_limit_s,
            speedup=self.speedup,
            requeue=request.requeue,
            stop_after_s=parse_isolation_policy(request.when_cut_off),
            contract=self.contract,
            grow_if=GrowIf(request.grow_if) if request.grow_if else None,
            priority=request.priority,
            resources=self.resources,
            node_needs=self.node_needs,
            account=self.account,
            dependencies=self.dependencies,
            warning=self.warning,
            comment=request.comment,
            notify=self.notify,
            components=tuple(request.components),
            begin=None if self.begin_s is None else now + self.begin_s,
            tasks=self.tasks,
        )

    @property
    def program_bytes(self) -> int:
        """Return the size of arguments and environment as JSON, in bytes."""
        return sum(len(json.dumps(part)) for part in (self.request.argv, self.request.env))

    @property
    def job_count(self) -> int:
        """Return how many jobs this counts as for user limits: 1, or an array's number of tasks."""
        return len(self.tasks.numbers) if self.tasks is not None else 1

    @property
    def number_count(self) -> int:
        """Return how many job numbers to reserve: 1, and for an array one for each task number.

        These are all numbers from 0 to the array's last, also those that its list of tasks skips.
        """
        return 2 + self.tasks.numbers.last if self.tasks is not None else 1

    def program(self, spec: JobSpec) -> Program:
        """Return what nodes need to start the job: command line, environment and files.

        Args:
            spec: the specification of the job, with its number, name and user.
        """
        request = self.request

        patterns = (request.stdin, request.stdout, request.stderr)
        by_node = any(has_mark(pattern, PLACE_MARKS) for pattern in patterns)
        keep = PLACE_MARKS if by_node else frozenset()
        marks = job_marks(spec.id, spec.name, spec.user)
        if self.tasks is not None:
            keep |= TASK_MARKS
            marks = {mark: value for mark, value in marks.items() if mark not in keep}
        # The folder is not a pattern: what is replaced later must not find a mark in it.
        cwd = request.cwd.replace("%", "%%") if keep else request.cwd

        def path(pattern: str) -> str:
            return os.path.join(cwd, expand(pattern, marks, keep)) if pattern else ""

        return Program(
            argv=tuple(request.argv),
            env={k: v for k, v in request.env.items() if k not in JOB_VARIABLES}
            | _stage_variables(request.stage),
            cwd=request.cwd,
            stdin=path(request.stdin),
            stdout=path(request.stdout or DEFAULT_OUTPUT[self.tasks is not None]),
            stderr=path(request.stderr),
            umask=request.umask,
            open_mode=request.open_mode,
            bind=request.bind,
            record_load_s=request.record_load_s or 0.0,
            files_by_node=by_node,
            tasks=str(self.tasks.numbers) if self.tasks is not None else "",
        )


def check_submission(
    raw: object,
    processors: int,
    wall: float = 0.0,
    amounts: Mapping[str, int] | None = None,
    nodes: Callable[[], list[NodeView]] = list,
    max_array_size: int = LARGEST_ARRAY_SIZE,
) -> Submission:
    """Check a submission against the schema and the cluster, and return it with parsed values.

    Args:
        raw: the submission as the client sent it.
        processors: number of processors of the cluster.
        wall: the wall-clock time, for absolute deadlines, seconds since the epoch.
        amounts: total amount of each named resource.
        nodes: returns the nodes of the cluster. Called only if the job needs something of them.
        max_array_size: the numbers of an array's tasks must be smaller.

    Raises:
        UserRequestError: if it is invalid, or can never run on this cluster.
    """
    try:
        request = msgspec.convert(raw, JobRequest)
    except msgspec.ValidationError as error:
        raise error_of_msgspec(str(error)) from None
    except UnicodeEncodeError:  # msgspec cannot encode a lone surrogate in its message
        field = field_with_lone_surrogate(raw)
        raise UserRequestError(f"{field}: it has half of a character", field=field) from None
    _check_program(request)
    _check_times(request)
    _check_policy(request)
    check_priority(request.priority)
    begin_s = check_begin(request.begin_s, request.begin_at, wall)
    contract = contract_from_begin(_check_contract(request, wall), begin_s)
    speedup = _check_speedup(request)
    sizes = check_sizes(request, processors)
    needs = check_resources(request, sizes, amounts or {})
    node_needs = check_node_needs(request, sizes.min, nodes)
    check_comment(request.comment)
    notify = check_notify(request.notify, request.notify_on)
    check_components(request.components, sizes)
    return Submission(
        request,
        sizes,
        contract,
        speedup,
        needs,
        node_needs,
        dependencies=check_dependencies(request.dependency),
        warning=check_warning(request.signal, request.time_limit_s),
        begin_s=begin_s,
        tasks=check_array(request.array, max_array_size),
        notify=notify,
    )


def _check_program(request: JobRequest) -> None:
    if not request.argv or not request.argv[0]:
        raise UserRequestError("argv: a job needs a program", field="argv")
    if len(request.name) > MAX_NAME_LENGTH:
        raise UserRequestError(f"name: longer than {MAX_NAME_LENGTH} characters", field="name")
    if not os.path.isabs(request.cwd):
        raise UserRequestError("cwd: expected an absolute path", field="cwd")
    if request.stage is not None and request.array:
        raise UserRequestError(
            "stage: not possible for an array: submit single jobs", field="stage"
        )
    if request.key and not request.key.isprintable():
        raise UserRequestError("key: it has characters that cannot be printed", field="key")
    if not 0 <= request.umask <= 0o777:
        raise UserRequestError("umask: expected 0 to 0777", field="umask")
    for name in request.env:
        if not name or "=" in name:
            raise UserRequestError(f"env: {name!r} is no name for a variable", field="env")
    texts = {
        "argv": request.argv,
        "env": [f"{name}={value}" for name, value in request.env.items()],
        "name": [request.name],
        "cwd": [request.cwd],
        "stdin": [request.stdin],
        "stdout": [request.stdout],
        "stderr": [request.stderr],
        "stage": [*_stage_variables(request.stage).values()],
    }
    if request.stage is not None and any(os.pathsep in each for each in request.stage.out):
        raise UserRequestError(
            f"stage: a pattern of outputs must not hold {os.pathsep!r}", field="stage"
        )
    total = sum(_check_texts(field, strings) for field, strings in texts.items())
    if total > MAX_TOTAL_BYTES:
        raise UserRequestError(
            f"argv and env: {total} bytes together, the limit is {MAX_TOTAL_BYTES}", field="argv"
        )


def _stage_variables(stage: StageRequest | None) -> dict[str, str]:
    if stage is None:
        return {}
    return {
        STAGE_ARCHIVE: f"{stage.size}:{stage.sha256}",
        STAGE_OUTPUTS: os.pathsep.join(stage.out),
    }


def _check_texts(field: str, strings: list[str]) -> int:
    total = 0
    for text in strings:
        if "\0" in text:
            raise UserRequestError(f"{field}: a zero byte cannot be passed on", field=field)
        try:
            length = len(text) if text.isascii() else len(os.fsencode(text))
        except UnicodeEncodeError:
            raise UserRequestError(
                f"{field}: not a byte string of this host", field=field
            ) from None
        if length > MAX_ARGUMENT_BYTES:
            raise UserRequestError(
                f"{field}: a string of {length} bytes, the limit is {MAX_ARGUMENT_BYTES}",
                field=field,
            )
        total += length + 9  # its end and its pointer
    return total


def _check_times(request: JobRequest) -> None:
    for field in ("time_limit_s", "estimate_s"):
        value = getattr(request, field)
        if value is not None and not (math.isfinite(value) and 0 < value <= MAX_DURATION_S):
            raise UserRequestError(
                f"{field}: expected more than 0 and at most {MAX_DURATION_S:g} seconds, "
                f"got {value}",
                field=field,
            )
    interval = request.record_load_s
    if interval is not None and not MIN_LOAD_INTERVAL_S <= interval <= MAX_LOAD_INTERVAL_S:
        raise UserRequestError(
            f"record_load_s: expected {MIN_LOAD_INTERVAL_S:g} to {MAX_LOAD_INTERVAL_S:g} seconds, "
            f"got {interval:g}",
            field="record_load_s",
        )


def _check_contract(request: JobRequest, wall: float) -> Contract | None:
    """Return the contract of a job, its deadline and profit; None if the job has no deadline."""
    if request.deadline_s is not None and request.deadline_at is not None:
        raise UserRequestError("deadline_s and deadline_at: give one of them", field="deadline_s")
    deadline_s = request.deadline_s
    if request.deadline_at is not None:
        deadline_s = request.deadline_at - wall
    if deadline_s is None:
        if request.profit:
            raise UserRequestError(
                f"profit: {request.profit!r:.60} needs a deadline (--deadline)", field="profit"
            )
        return None
    if not (math.isfinite(deadline_s) and deadline_s <= MAX_DURATION_S):
        raise UserRequestError(
            f"deadline: expected at most {MAX_DURATION_S:g} seconds from now, got {deadline_s:g}",
            field="deadline",
        )
    if deadline_s <= 0:
        raise UserRequestError(f"deadline: passed {-deadline_s:.0f} s ago", field="deadline")
    try:
        return parse_profit(request.profit, deadline_s)
    except ValueError as error:
        raise UserRequestError(f"profit: {error}", field="profit") from None


def _check_policy(request: JobRequest) -> None:
    try:
        parse_isolation_policy(request.when_cut_off)
    except ValueError as error:
        raise UserRequestError(f"when_cut_off: {error}", field="when_cut_off") from None


def check_priority(priority: int) -> None:
    """Check that a priority is within its bounds.

    Raises:
        UserRequestError: if it is not.
    """
    if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise UserRequestError(
            f"priority: expected {MIN_PRIORITY} to {MAX_PRIORITY}, got {priority}", field="priority"
        )


def _check_speedup(request: JobRequest) -> Speedup:
    if request.speedup == "linear":
        return LINEAR
    try:
        if len(request.speedup) > MAX_SPEEDUP_LENGTH:
            raise SpeedupError(f"speedup: longer than {MAX_SPEEDUP_LENGTH} characters")
        return parse_speedup(request.speedup)
    except SpeedupError as error:
        raise UserRequestError(str(error), field="speedup") from None

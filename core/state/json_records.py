"""Convert jobs and nodes to JSON-able dictionaries and back, as the database stores them.

The keys are those of the first version, so some differ from today's field names. Negotiations are
not stored: a restart withdraws a resize that is not agreed, and later only the stage matters.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from math import inf
from typing import Any, TypeVar

from pliant.core.arrays.progress import ArrayProgress
from pliant.core.arrays.task_numbers import parse_array, parse_task_numbers
from pliant.core.model import wait_reasons
from pliant.core.model.checkpoint import Checkpoint, Relocation, SaveStage, Saving
from pliant.core.model.jobs import Completion, Job, JobSpec, JobType, Promise, RegisteredProgram
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.model.negotiation import Negotiation, NegotiationState
from pliant.core.model.nodes import Node, NodeFault, NodeState
from pliant.core.model.resize import (
    Agreed,
    Begun,
    Go,
    Negotiating,
    Preparing,
    Releasing,
    Resize,
    ResizeStage,
    Stage,
    Withdrawing,
)
from pliant.core.model.size_request import RequestAnswer, RequestOutcome, SizeRequest
from pliant.core.model.usage import OpenPhase
from pliant.core.model.warning_signal import WarningSignal
from pliant.core.support.base_error import PliantError
from pliant.core.values.dependencies import format_dependencies, parse_dependencies
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.lost_contact_policy import Isolation
from pliant.core.values.negotiation_policy import GrowIf
from pliant.core.values.node_needs import needs_from_record
from pliant.core.values.processors import from_indices, indices
from pliant.core.values.profit_contract import contract_from_record
from pliant.core.values.resources import parse_needs
from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.core.values.speedup import parse_speedup

#: Incremented with each change of the form. A migration updates older records.
RECORD_VERSION = 1

Record = dict[str, Any]

T = TypeVar("T")


class NewerRecordError(PliantError):
    """A record has a form that only a later version of Pliant knows."""


def check_version(record: Mapping[str, Any]) -> None:
    """Check that this version of Pliant can read a record.

    Raises:
        NewerRecordError: only a later version can.
    """
    version = record.get("version", RECORD_VERSION)
    if type(version) is int and version > RECORD_VERSION:
        raise NewerRecordError(
            f"has record version {version}; this Pliant knows versions up to {RECORD_VERSION}"
        )


def job_to_record(job: Job) -> Record:
    """Return the values of a job that must survive a restart, as a JSON object."""
    spec = job.spec
    return {
        "version": RECORD_VERSION,
        "id": spec.id,
        "name": spec.name,
        "user": spec.user,
        "uid": spec.uid,
        "type": spec.type.value,
        "sizes": _sizes_to_record(spec.sizes),
        "submit": spec.submit,
        "estimate_s": spec.estimate_s,
        "time_limit_s": spec.time_limit_s,
        "requested": spec.requested,
        "speedup": str(spec.speedup),
        "contract": spec.contract.to_record() if spec.contract else None,
        "requeue": spec.requeue,
        "stop_after_s": spec.stop_after_s,
        "grow_if": spec.grow_if.value if spec.grow_if else None,
        "priority": spec.priority,
        "priority_now": job.priority,
        "resources": list(map(str, spec.resources)),
        "node_needs": spec.node_needs.to_record() if spec.node_needs else None,
        "account": spec.account,
        "dependencies": format_dependencies(spec.dependencies),
        "dependencies_now": format_dependencies(job.dependencies),
        "warning": list(spec.warning) if spec.warning else None,
        "comment": spec.comment,
        **({"notify": spec.notify} if spec.notify else {}),
        "components": list(spec.components),
        "begin": spec.begin,
        **({"array": spec.array} if spec.array else {}),
        **_progress_to_record(job),
        "state": job.state.value,
        "reason": job.why,
        "wait": wait_reasons.to_record(job.wait) if job.wait else None,
        "sizes_now": _sizes_to_record(job.sizes),
        "malleable": job.malleable,
        "run": job.run,
        "epoch": job.epoch,
        "ranks": list(job.ranks),
        "held": list(indices(job.occupied)),
        "devices": [[p, {k: list(v) for k, v in own.items()}] for p, own in job.devices.items()],
        "promise": job.promise.text if job.promise is not None else "",
        "promised_start": job.promise.start if job.promise is not None else None,
        "earmark": list(indices(job.reserved)),
        "earmark_from": sorted(job.donors),
        "starting": sorted(job.starting),
        "resize": _resize_to_record(job.resize) if job.resize else None,
        "saving": asdict(job.saving) if job.saving else None,
        **({"relocation": asdict(job.relocation)} if job.relocation else {}),
        "checkpoint": list(job.checkpoint) if job.checkpoint else None,
        "parked": job.suspended_by_strategy,
        "again": job.completion.requeue if job.completion is not None else False,
        "hold": job.completion.hold if job.completion is not None else False,
        "had": job.size_before_loss,
        "used_s": job.used_s,
        **({"restarts": job.restarts} if job.restarts else {}),
        "warned_run": job.warned_run,
        "outlives_s": job.isolation_grace_s,
        "cut_off": {name: entry.wait_s for name, entry in job.isolated.items()},
        "request": _request_to_record(job.request) if job.request else None,
        "answered": list(job.answered) if job.answered else None,
        "on_request": job.evolving_only,
        "pinned": job.size_fixed_by_operator,
        "quiet_until": job.no_offers_until,
        "start": job.start,
        "since": job.since,
        "done": job.done,
        "computed_s": list(job.computed_s.items()),
        "phase_since": job.phase.since if job.phase is not None else None,
        "end": job.end,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "ending": job.ending.value if job.ending else None,
        "story": job.history_lines(),
    }


def job_from_record(record: Mapping[str, Any]) -> Job:
    """Return the job that a record describes; keys of other versions are ignored.

    Raises:
        NewerRecordError: a later version wrote it in another form.
    """
    check_version(record)
    wait = wait_reasons.from_record(record.get("wait"))
    return Job(
        spec=_spec_from_record(record),
        state=JobState(record["state"]),
        reason="" if wait else record["reason"],
        wait=wait,
        sizes=_sizes_from_record(record["sizes_now"]),
        priority=record.get("priority_now", record.get("priority", 0)),
        dependencies=parse_dependencies(record.get("dependencies_now", "")),
        registration=_registration_from_record(record),
        run=record["run"],
        epoch=record["epoch"],
        ranks=tuple(record["ranks"]),
        occupied=from_indices(record["held"]),
        devices=_devices_from_record(record.get("devices", [])),
        promise=Promise(record["promise"], record.get("promised_start"))
        if record.get("promise")
        else None,
        reserved=from_indices(record["earmark"]),
        donors=frozenset(map(JobId, record["earmark_from"])),
        starting=set(record["starting"]),
        resize=_resize_from_record(record["resize"]) if record["resize"] else None,
        saving=_saving_from_record(record["saving"]) if record.get("saving") else None,
        relocation=_relocation_from_record(record.get("relocation")),
        checkpoint=_checkpoint_from_record(record["checkpoint"])
        if record.get("checkpoint")
        else None,
        suspended_by_strategy=record.get("parked", False),
        size_before_loss=record.get("had", 0),
        used_s=record.get("used_s", 0.0),
        restarts=record.get("restarts", 0),
        warned_run=record.get("warned_run", 0),
        isolation_grace_s=record.get("outlives_s", 0.0),
        isolated=_cut_off_from_record(record.get("cut_off", {})),
        request=_request_from_record(record["request"]) if record.get("request") else None,
        answered=_answer_from_record(record["answered"]) if record.get("answered") else None,
        size_fixed_by_operator=record["pinned"],
        no_offers_until=record["quiet_until"],
        start=record["start"],
        since=record.get("since", record["start"] or 0.0),
        done=record.get("done", 0.0),
        computed_s=dict(record.get("computed_s", [])),
        phase=_phase_from_record(record),
        progress=_progress_from_record(record),
        end=record["end"],
        exit_code=record["exit_code"],
        signal=record["signal"],
        completion=_completion_from_record(record),
        history=list(record["story"]),
    )


def _spec_from_record(record: Mapping[str, Any]) -> JobSpec:
    return JobSpec(
        id=JobId(record["id"]),
        name=record["name"],
        user=record["user"],
        type=JobType(record["type"]),
        sizes=_sizes_from_record(record["sizes"]),
        submit=record["submit"],
        uid=record["uid"],
        estimate_s=record["estimate_s"],
        time_limit_s=record["time_limit_s"],
        requested=record.get("requested", 0),
        speedup=parse_speedup(record.get("speedup", "linear")),
        contract=contract_from_record(record["contract"]) if record.get("contract") else None,
        requeue=record.get("requeue", False),  # before there were three, False forbade it, too
        stop_after_s=record.get("stop_after_s"),
        grow_if=GrowIf(record["grow_if"]) if record.get("grow_if") else None,
        priority=record.get("priority", 0),
        resources=parse_needs(record.get("resources", ())),
        node_needs=needs_from_record(record.get("node_needs")),
        account=record.get("account", ""),
        dependencies=parse_dependencies(record.get("dependencies", "")),
        warning=WarningSignal(*record["warning"]) if record.get("warning") else None,
        comment=record.get("comment", ""),
        notify=record.get("notify", ""),
        components=tuple(record.get("components", ())),
        begin=record.get("begin"),
        tasks=parse_array(record["tasks"]) if record.get("tasks") else None,
        array=JobId(record.get("array", 0)),
    )


def _progress_to_record(job: Job) -> Record:
    """Return the tasks of an array with their states; empty for other jobs."""
    progress = job.progress
    if progress is None:
        return {}
    return {
        "tasks": str(job.spec.tasks),
        "tasks_pending": str(progress.pending),
        "tasks_cancelled": str(progress.cancelled),
        "tasks_ended": [progress.ended, progress.failed, progress.cancelled_jobs],
        "tasks_exit": [progress.exit_code, progress.signal],
    }


def _progress_from_record(record: Mapping[str, Any]) -> ArrayProgress | None:
    if not record.get("tasks"):
        return None
    return ArrayProgress(
        parse_task_numbers(record["tasks_pending"], max_text=None),
        parse_task_numbers(record["tasks_cancelled"], max_text=None),
        *record["tasks_ended"],
        *record["tasks_exit"],
    )


def _devices_from_record(record: list[Any]) -> dict[int, dict[str, tuple[int, ...]]]:
    return {
        processor: {kind: tuple(numbers) for kind, numbers in own.items()}
        for processor, own in record
    }


def node_to_record(node: Node) -> Record:
    """Return the values of a node that must survive a restart, as a JSON object."""
    return {
        "version": RECORD_VERSION,
        "name": node.name,
        "first": node.first,
        "slots": node.slots,
        "cluster": node.cluster,
        "address": node.address,
        "memory_bytes": node.memory_bytes,
        "gres": dict(node.gres),
        "properties": list(node.properties),
        "overcommitted": node.overcommitted,
        "state": node.state.value,
        "reason": node.reason,
        "drained": node.drained,
        "fault": node.fault.value if node.fault else "",
        "spare": node.spare,
        "stands_in": node.stands_in,
    }


def node_from_record(record: Mapping[str, Any]) -> Node:
    """Return the node that a record describes; keys of other versions are ignored.

    Raises:
        NewerRecordError: a later version wrote it in another form.
    """
    check_version(record)
    return Node(
        name=NodeName(record["name"]),
        first=record["first"],
        slots=record["slots"],
        cluster=record["cluster"],
        address=record["address"],
        memory_bytes=record["memory_bytes"],
        gres=dict(record.get("gres", {})),
        properties=tuple(record.get("properties", ())),
        overcommitted=record.get("overcommitted", False),
        state=NodeState(record["state"]),
        reason=record["reason"],
        drained=record.get("drained", ""),
        fault=_fault_from_record(record.get("fault", "")),
        spare=record.get("spare", False),
        stands_in=record.get("stands_in", ""),
    )


def _made(cls: type[T], record: Mapping[str, Any]) -> T:
    """Return an object of a dataclass from a record; keys that are no fields are ignored."""
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in record.items() if name in names})


def _fault_from_record(text: str) -> NodeFault | None:
    # A fault that only another version knows needs an operator, as faults of early versions did.
    return NodeFault(text) if text in {*NodeFault} else None


def _sizes_to_record(sizes: Sizes) -> list[Any]:
    return [str(sizes), sizes.preferred]


def _sizes_from_record(record: list[Any]) -> Sizes:
    return parse_sizes(record[0], record[1])


def _request_to_record(request: SizeRequest) -> Record:
    return {
        "number": request.number,
        "sizes": _sizes_to_record(request.sizes),
        "wanted": request.wanted,
        "since": request.since,
        "release": request.is_shrink,
        "reason": request.reason,
        "deadline": request.deadline,
        "base": request.base,
        "overdue": request.overdue,
    }


def _request_from_record(record: Mapping[str, Any]) -> SizeRequest:
    return SizeRequest(
        number=record["number"],
        sizes=_sizes_from_record(record["sizes"]),
        wanted=record["wanted"],
        since=record["since"],
        is_shrink=record.get("release", False),
        reason=record.get("reason", ""),
        deadline=record.get("deadline"),
        base=record.get("base"),
        overdue=record.get("overdue", False),
    )


def _phase_from_record(record: Mapping[str, Any]) -> OpenPhase | None:
    # Versions that charged nothing stored no phase. Their jobs are charged from now on for the
    # time since the last resize.
    since = record.get("phase_since", record.get("since"))
    if since is None or JobState(record["state"]) not in ACTIVE_STATES:
        return None
    return OpenPhase(since, from_indices(record["ranks"]), record["run"])


def _completion_from_record(record: Mapping[str, Any]) -> Completion | None:
    final = JobState(record["ending"]) if record["ending"] else None
    requeue = record.get("again", False)
    if record["state"] == JobState.COMPLETING or final or requeue:
        return Completion(final, requeue, record.get("hold", False))
    return None


def _registration_from_record(record: Mapping[str, Any]) -> RegisteredProgram | None:
    if not record["malleable"]:
        return None
    return RegisteredProgram(record.get("on_request", False), connected=False)


def _answer_from_record(record: list[Any]) -> RequestAnswer:
    number, outcome, size, reason, *_ = record
    return RequestAnswer(number, RequestOutcome(outcome), size, reason)


def _cut_off_from_record(record: Mapping[str, float]) -> dict[NodeName, Isolation]:
    """Return the lost nodes of a job, each with the seconds to wait until its processes have ended.

    The waiting begins anew after a restart, as the clock may have changed. So no times are stored.
    """
    return {NodeName(name): Isolation(inf, wait_s) for name, wait_s in record.items()}


def _saving_from_record(record: Mapping[str, Any]) -> Saving:
    return _made(Saving, {**record, "stage": SaveStage(record["stage"])})


def _checkpoint_from_record(record: list[Any] | None) -> Checkpoint | None:
    return Checkpoint(*record[: len(Checkpoint._fields)]) if record else None


def _relocation_from_record(record: Mapping[str, Any] | None) -> Relocation | None:
    if not record:
        return None
    known = {each.name: record[each.name] for each in fields(Relocation) if each.name in record}
    nodes = {name: tuple(known[name]) for name in ("sources", "targets")}
    return Relocation(**{**known, **nodes})


def _resize_to_record(resize: Resize) -> Record:
    stage = resize.stage
    talks = stage if isinstance(stage, Negotiating) else Negotiating()
    return {
        "id": resize.id,
        "stage": stage.name.value,
        "since": resize.since,
        "before": list(resize.before),
        "after": list(resize.after),
        "cause": resize.cause,
        "begun": stage.at if isinstance(stage, Begun) else None,
        "preparing": sorted(stage.nodes) if isinstance(stage, Preparing) else [],
        "gone": list(indices(resize.gone)),
        "reason": resize.reason,
        "serves": resize.has_recipients,
        "until": talks.expires_at,
        "not_before": stage.not_before if isinstance(stage, Agreed) else 0.0,
        "price": talks.price,
        "mandatory": resize.mandatory,
    }


def _resize_from_record(record: Mapping[str, Any]) -> Resize:
    number = ResizeId(record["id"])
    return Resize(
        id=number,
        stage=_stage_from_record(record),
        negotiation=Negotiation(number, NegotiationState.AGREED),
        since=record["since"],
        before=tuple(record["before"]),
        after=tuple(record["after"]),
        cause=record["cause"],
        gone=from_indices(record["gone"]),
        has_recipients=record.get("serves", False),
        mandatory=record.get("mandatory", False),
    )


def _stage_from_record(record: Mapping[str, Any]) -> Stage:
    """Return the stage of a resize; values that this stage does not have are ignored."""
    match ResizeStage(record["stage"]):
        case ResizeStage.NEGOTIATING:
            return Negotiating(record.get("price", 0.0), record.get("until", 0.0))
        case ResizeStage.AGREED:
            return Agreed(record.get("not_before", 0.0))
        case ResizeStage.PREPARE:
            return Preparing(set(record["preparing"]))
        case ResizeStage.GO:
            return Go()
        case ResizeStage.BEGUN:
            return Begun(record.get("begun") or record["since"], record["reason"])
        case ResizeStage.WITHDRAWING:
            return Withdrawing(record["reason"])
        case ResizeStage.RELEASING:
            return Releasing()

"""Convert wire messages to values of ``pliant.core``, and back.

All received messages are checked here: a message without a valid value raises CodecError.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pliant.core import commands, events
from pliant.core.model import negotiation
from pliant.core.model.jobs import Exit
from pliant.core.model.nodes import JobMemory, NodeLoad
from pliant.core.model.size_request import RequestAnswer, RequestOutcome
from pliant.core.support.input_limits import MAX_PROCESSORS, MAX_TEXT
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.node_needs import MAX_GRES, MAX_MEMORY, is_gres_name
from pliant.core.values.node_property_constraint import is_property
from pliant.core.values.processors import from_indices
from pliant.core.values.sizes import Sizes, SizesError, parse_sizes
from pliant.protos import app_pb2, node_pb2
from pliant.protos.codec_error import CodecError
from pliant.protos.sanitize_text import sanitize_text

#: Characters of a list of sizes, enough for some hundred.
MAX_SIZES_TEXT = 4000
#: Items of one negotiation message.
MAX_ITEMS = 16
#: Kinds of generic resources, and properties, of one node.
MAX_GRES_KINDS, MAX_PROPERTIES = 32, 64
#: Most jobs in one report of a node's load.
MAX_JOBS_OF_NODE = 1 << 16
#: A job counts as faulting from so many major faults per second. Single faults are no shortage.
MIN_FAULT_RATE = 1.0


_VERBS = {
    negotiation.Verb.OFFER: app_pb2.VERB_OFFER,
    negotiation.Verb.COUNTER: app_pb2.VERB_COUNTER,
    negotiation.Verb.FINAL: app_pb2.VERB_FINAL,
    negotiation.Verb.ACCEPT: app_pb2.VERB_ACCEPT,
    negotiation.Verb.REJECT: app_pb2.VERB_REJECT,
    negotiation.Verb.WITHDRAW: app_pb2.VERB_WITHDRAW,
    negotiation.Verb.EXPIRE: app_pb2.VERB_EXPIRE,
}
_VERBS_BACK = {wire: verb for verb, wire in _VERBS.items()}
_DIRECTIONS = {
    negotiation.Direction.RELEASE: app_pb2.DIRECTION_RELEASE,
    negotiation.Direction.RECEIVE: app_pb2.DIRECTION_RECEIVE,
}
_DIRECTIONS_BACK = {wire: direction for direction, wire in _DIRECTIONS.items()}
_OUTCOMES = {
    RequestOutcome.GRANTED: app_pb2.REQUEST_OUTCOME_GRANTED,
    RequestOutcome.PARTLY: app_pb2.REQUEST_OUTCOME_PARTLY,
    RequestOutcome.REFUSED: app_pb2.REQUEST_OUTCOME_REFUSED,
    RequestOutcome.CANCELLED: app_pb2.REQUEST_OUTCOME_CANCELLED,
    RequestOutcome.EXPIRED: app_pb2.REQUEST_OUTCOME_EXPIRED,
}
_OUTCOMES_BACK = {wire: outcome for outcome, wire in _OUTCOMES.items()}


# ------------------------------------------------------------------ negotiation


def template_to_proto(template: negotiation.Template) -> app_pb2.Template:
    """Convert a template to protobuf.

    A template is a message, such as an offer, of a negotiation about the size of a job.
    """
    return app_pb2.Template(
        negotiation=template.negotiation,
        job=template.job,
        epoch=template.epoch,
        round=template.round,
        verb=_VERBS[template.verb],
        items=[_item_to_proto(item) for item in template.items],
        reason=sanitize_text(template.reason),
        skip_gain_test=template.skip_gain_test,
    )


def template_from_proto(message: app_pb2.Template) -> negotiation.Template:
    """Read a template, a message of a negotiation about a job's size, or raise CodecError."""
    verb = _VERBS_BACK.get(message.verb)
    if verb is None:
        raise CodecError(f"verb: {message.verb} is unknown")
    if len(message.items) > MAX_ITEMS:
        raise CodecError(f"items: {len(message.items)}, at most {MAX_ITEMS} are read")
    return negotiation.Template(
        negotiation=message.negotiation,
        job=message.job,
        epoch=message.epoch,
        verb=verb,
        items=tuple(_item_from_proto(item) for item in message.items),
        round=message.round,
        reason=message.reason[:MAX_TEXT],
        skip_gain_test=message.skip_gain_test,
    )


def _item_to_proto(item: negotiation.Item) -> app_pb2.Item:
    return app_pb2.Item(
        kind=sanitize_text(item.kind),
        quantity=item.quantity,
        direction=_DIRECTIONS[item.direction],
        price=item.price,
        not_before_s=item.not_before,
        valid_until_s=item.valid_until,
        mandatory=item.mandatory,
        required=item.required,
        estimated_cost_s=item.estimated_cost_s,
        sizes=item.sizes,
        status=item.status.value,
    )


def _item_from_proto(message: app_pb2.Item) -> negotiation.Item:
    direction = _DIRECTIONS_BACK.get(message.direction)
    if direction is None:
        raise CodecError(f"direction: {message.direction} is unknown")
    try:
        status = negotiation.ItemStatus(message.status or negotiation.ItemStatus.PENDING)
    except ValueError:
        raise CodecError(f"status: {message.status[:80]!r} is unknown") from None
    for field, text, limit in (
        ("kind", message.kind, MAX_TEXT),
        ("sizes", message.sizes, MAX_SIZES_TEXT),
    ):
        if len(text) > limit:
            raise CodecError(f"{field}: longer than {limit} characters")
    return negotiation.Item(
        kind=message.kind,
        quantity=message.quantity,
        direction=direction,
        price=check_finite("price", message.price),
        not_before=check_finite("not_before_s", message.not_before_s),
        valid_until=check_finite("valid_until_s", message.valid_until_s),
        mandatory=message.mandatory,
        required=message.required,
        estimated_cost_s=check_finite("estimated_cost_s", message.estimated_cost_s),
        sizes=message.sizes,
        status=status,
    )


# ------------------------------------------------------------------ applications


def registration_from_proto(message: app_pb2.Hello) -> events.ApplicationRegistered:
    """Read the first message (Hello) of an application's coordinator, or raise CodecError.

    The coordinator is the part of the application on rank 0 that communicates with the server.
    """
    return events.ApplicationRegistered(
        job=JobId(message.job),
        run=message.run,
        epoch=message.epoch,
        processors=_processors(message.processors),
        sizes=_sizes(message.sizes, message.preferred),
        pending=ResizeId(message.pending_resize),
        evolving_only=message.on_request,
    )


def begun_from_proto(message: app_pb2.Hello) -> events.ResizeBegun | None:
    """Return an event if an application's first message (Hello) reports that a resize has begun.

    None if it reports no begun resize.
    """
    if not message.begun or not message.pending_resize:
        return None
    return events.ResizeBegun(JobId(message.job), message.run, ResizeId(message.pending_resize))


def decision_from_proto(job: JobId, run: int, message: app_pb2.Outcome) -> events.ResizeDecided:
    """Read an application's report that a resize was committed or not, or raise CodecError."""
    return events.ResizeDecided(
        job=job,
        run=run,
        resize=ResizeId(message.resize),
        committed=message.committed,
        epoch=message.epoch,
        processors=_processors(message.processors),
        stage=message.stage[:MAX_TEXT],
        reason=message.reason[:MAX_TEXT],
        seconds={name: check_finite(name, value) for name, value in message.seconds.items()},
        bytes_moved=message.bytes_moved,
    )


def request_from_proto(
    job: JobId, run: int, message: app_pb2.RequestSizes
) -> events.SizesRequested:
    """Read the request of an application for other sizes, or raise CodecError."""
    if not message.number:
        raise CodecError("number: requests count from 1")
    sizes = _sizes(message.sizes, message.preferred)
    if sizes is None:
        raise CodecError("sizes: a request names some")
    if len(message.reason) > MAX_TEXT:
        raise CodecError(f"reason: longer than {MAX_TEXT} characters")
    deadline = check_finite("deadline_s", message.deadline_s)
    return events.SizesRequested(
        job=job,
        run=run,
        number=message.number,
        sizes=sizes,
        reason=message.reason,
        deadline=deadline or None,
    )


def open_request_from_proto(
    message: app_pb2.Hello,
) -> events.SizesRequested | events.RequestCancelled | None:
    """Return the request for other sizes that an application repeats in its first message (Hello).

    If the application has cancelled the request, return that as an event. None if there is no
    request. May raise CodecError.
    """
    if not message.HasField("request"):
        return None
    job, run = JobId(message.job), message.run
    request = request_from_proto(job, run, message.request)
    return events.RequestCancelled(job, run, request.number) if message.cancelled else request


def answer_to_proto(answer: commands.AnswerRequest) -> app_pb2.RequestAnswer:
    """Convert the server's answer to a request for other sizes to protobuf."""
    return app_pb2.RequestAnswer(
        number=answer.number,
        outcome=_OUTCOMES[answer.outcome],
        size=answer.size,
        reason=sanitize_text(answer.reason),
    )


def answer_from_proto(message: app_pb2.RequestAnswer) -> RequestAnswer:
    """Read the server's answer to a request for other sizes, or raise CodecError."""
    outcome = _OUTCOMES_BACK.get(message.outcome)
    if outcome is None:
        raise CodecError(f"outcome: {message.outcome} is unknown")
    return RequestAnswer(message.number, outcome, message.size, message.reason)


def speeds_from_proto(
    job: JobId, run: int, message: app_pb2.Progress
) -> events.SpeedMeasured | None:
    """Return the event that an application has measured its seconds per iteration at some sizes.

    None if it sent no measurement. May raise CodecError.
    """
    seconds: dict[int, float] = {}
    for each in message.measured:
        value = check_finite("seconds_per_iteration", each.seconds_per_iteration)
        if not 1 <= each.size <= MAX_PROCESSORS or value <= 0:
            raise CodecError(f"measured: {value} s per iteration on {each.size} processors")
        seconds[each.size] = value
    return events.SpeedMeasured(job, run, seconds) if seconds else None


def _sizes(text: str, preferred: int) -> Sizes | None:
    if not text:
        return None
    if len(text) > MAX_SIZES_TEXT:
        raise CodecError(f"sizes: longer than {MAX_SIZES_TEXT} characters")
    try:
        return parse_sizes(text, preferred or None)
    except SizesError as error:
        raise CodecError(str(error)) from None


# ------------------------------------------------------------------ nodes


def node_from_proto(message: node_pb2.Register) -> events.NodeRegistered:
    """Read the message with which a node registers, or raise CodecError."""
    if not message.name:
        raise CodecError("name: a node needs one")
    if not 1 <= message.slots <= 1 << 16:
        raise CodecError(f"slots: expected 1 to 65536, got {message.slots}")
    return events.NodeRegistered(
        name=NodeName(message.name),
        slots=message.slots,
        cluster=message.cluster or "default",
        address=message.address or "127.0.0.1",
        memory_bytes=min(message.memory_bytes, MAX_MEMORY),
        worlds=tuple(_live_world(world) for world in message.worlds),
        spare=message.spare,
        joins_drained=message.joins_drained,
        gres=_gres(message),
        properties=_properties(message),
    )


def load_from_proto(node: NodeName, message: node_pb2.Load) -> events.NodeLoadMeasured:
    """Read a node's report of its memory load, or raise CodecError."""
    numbers = [message.fault_rate, message.interval_s, message.pressure]
    numbers += [job.fault_rate for job in message.jobs]
    if min(numbers) < 0 or not all(map(math.isfinite, numbers)):
        raise CodecError("load: a number is negative or not finite")
    if len(message.jobs) > MAX_JOBS_OF_NODE:
        raise CodecError(f"load: more than {MAX_JOBS_OF_NODE} jobs")
    demands = [min(job.demand_bytes, MAX_MEMORY) for job in message.jobs]
    load = NodeLoad(
        memory=float(min(message.memory_bytes, MAX_MEMORY)),
        demand=float(sum(demands)),
        fault_rate=message.fault_rate,
        faulting=tuple(
            JobMemory(JobId(job.job), float(demand))
            for job, demand in zip(message.jobs, demands, strict=True)
            if job.fault_rate >= MIN_FAULT_RATE
        ),
        pressure=message.pressure if message.HasField("pressure") else None,
    )
    return events.NodeLoadMeasured(node, load, message.interval_s)


def _gres(message: node_pb2.Register) -> tuple[tuple[str, int], ...]:
    if len(message.gres) > MAX_GRES_KINDS:
        raise CodecError(f"gres: more than {MAX_GRES_KINDS}")
    for name, amount in message.gres.items():
        if not is_gres_name(name) or amount > MAX_GRES:
            raise CodecError(f"gres: {name[:40]!r}: expected a name and up to {MAX_GRES}")
    return tuple(sorted(message.gres.items()))


def _properties(message: node_pb2.Register) -> tuple[str, ...]:
    if len(message.properties) > MAX_PROPERTIES:
        raise CodecError(f"properties: more than {MAX_PROPERTIES}")
    for name in message.properties:
        if not is_property(name):
            raise CodecError(f"properties: {name[:40]!r} is no property")
    return tuple(sorted(set(message.properties)))


def exits_from_proto(message: node_pb2.RanksExited) -> events.ProcessesExited:
    """Read a node's report of how ranks of a job have ended, or raise CodecError."""
    return events.ProcessesExited(
        job=JobId(message.job),
        run=message.run,
        resize=ResizeId(message.resize),
        exits=tuple(_exit(end) for end in message.exits),
    )


def _exit(end: node_pb2.RankExit) -> Exit:
    return Exit(
        processor=_processors([end.processor])[0],
        code=end.code,
        signal=end.signal,
        reason=end.reason,
        cut_off=end.cut_off,
        node_fault=end.node_fault,
        user_refused=end.user_refused,
        shim_lost=end.shim_lost,
    )


def ready_from_proto(node: NodeName, message: node_pb2.WorldReady) -> events.WorldReady:
    """Read a node's report that the ranks that it started are ready to join a running job."""
    return events.WorldReady(JobId(message.job), message.run, ResizeId(message.resize), node)


def _live_world(message: node_pb2.LiveWorld) -> events.LiveWorld:
    return events.LiveWorld(
        job=JobId(message.job),
        run=message.run,
        resize=ResizeId(message.resize),
        live=from_indices(_processors(message.live_processors)),
        ready=message.ready,
    )


# ------------------------------------------------------------------ numbers


def _processors(values: Iterable[int]) -> tuple[int, ...]:
    result = tuple(values)
    if any(value > MAX_PROCESSORS for value in result):
        raise CodecError(f"processors: {max(result)} is beyond {MAX_PROCESSORS}")
    return result


def check_finite(field: str, value: float) -> float:
    """Return a number if it is finite; otherwise raise CodecError."""
    if not math.isfinite(value):
        raise CodecError(f"{field}: expected a finite number, got {value}")
    return value

"""What goes over the wire comes back as it was; nonsense does not come in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.commands import AnswerRequest
from pliant.core.events import RequestCancelled, ResizeBegun, SizesRequested
from pliant.core.model.jobs import Exit
from pliant.core.model.negotiation import Direction, Item, ItemStatus, Template, Verb
from pliant.core.model.size_request import RequestAnswer, RequestOutcome
from pliant.core.support.input_limits import MAX_TEXT
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.processors import from_indices
from pliant.core.values.sizes import parse_sizes
from pliant.protos import app_pb2, node_pb2
from pliant.protos.codec import (
    answer_from_proto,
    answer_to_proto,
    begun_from_proto,
    decision_from_proto,
    exits_from_proto,
    load_from_proto,
    node_from_proto,
    open_request_from_proto,
    registration_from_proto,
    template_from_proto,
    template_to_proto,
)
from pliant.protos.codec_error import CodecError
from pliant.protos.sanitize_text import sanitize_text

numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**32 - 1)
items = st.builds(
    Item,
    kind=st.text(max_size=10),
    quantity=st.integers(0, 2**63),
    direction=st.sampled_from(Direction),
    price=numbers,
    not_before=numbers,
    valid_until=numbers,
    mandatory=st.booleans(),
    required=st.booleans(),
    estimated_cost_s=numbers,
    sizes=st.text(max_size=10),
    status=st.sampled_from(ItemStatus),
)
templates = st.builds(
    Template,
    negotiation=st.integers(0, 2**63),
    job=st.integers(0, 2**63),
    epoch=counts,
    verb=st.sampled_from(Verb),
    items=st.lists(items, max_size=4).map(tuple),
    round=counts,
    reason=st.text(max_size=20),
    skip_gain_test=st.booleans(),
)


@given(templates)
def test_templates_come_back_as_they_were(template: Template) -> None:
    message = app_pb2.Template.FromString(template_to_proto(template).SerializeToString())
    assert template_from_proto(message) == template


@pytest.mark.case(32)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        message = app_pb2.Template.FromString(data)
    except Exception:
        return  # no message at all
    try:
        template_from_proto(message)
    except CodecError:
        pass


def test_unknown_words_are_errors() -> None:
    with pytest.raises(CodecError, match="verb"):
        template_from_proto(app_pb2.Template())
    offer = app_pb2.Template(verb=app_pb2.VERB_OFFER, items=[app_pb2.Item()])
    with pytest.raises(CodecError, match="direction"):
        template_from_proto(offer)
    offer.items[0].direction = app_pb2.DIRECTION_RELEASE
    offer.items[0].status = "perhaps"
    with pytest.raises(CodecError, match="status"):
        template_from_proto(offer)
    offer.items[0].status = ""
    offer.items[0].price = math.nan
    with pytest.raises(CodecError, match="price"):
        template_from_proto(offer)


@pytest.mark.parametrize("field", ["kind", "sizes", "items"])
def test_words_have_a_limit(field: str) -> None:
    item = app_pb2.Item(kind="processors", direction=app_pb2.DIRECTION_RELEASE)
    offer = app_pb2.Template(verb=app_pb2.VERB_COUNTER, items=[item], reason="x" * 5000)
    assert len(template_from_proto(offer).reason) == 1000
    if field == "items":
        offer.items.extend([item] * 20)
    else:
        setattr(offer.items[0], field, "1" * 5000)
    with pytest.raises(CodecError, match=field):
        template_from_proto(offer)


def test_hello_has_the_sizes_of_the_program() -> None:
    hello = app_pb2.Hello(job=3, run=1, epoch=2, processors=[4, 2], sizes="1-8:pow2", preferred=4)
    event = registration_from_proto(hello)
    assert event.processors == (4, 2)
    assert event.sizes is not None
    assert (tuple(event.sizes.values), event.sizes.preferred) == ((1, 2, 4, 8), 4)
    assert registration_from_proto(app_pb2.Hello()).sizes is None
    for sizes, preferred in (("8-1", 0), ("1-4", 9), ("many", 0)):
        with pytest.raises(CodecError):
            registration_from_proto(app_pb2.Hello(sizes=sizes, preferred=preferred))


def test_hello_tells_again_what_has_begun() -> None:
    hello = app_pb2.Hello(job=3, run=1, pending_resize=7, begun=True)
    assert begun_from_proto(hello) == ResizeBegun(JobId(3), 1, ResizeId(7))
    assert begun_from_proto(app_pb2.Hello(job=3, run=1, pending_resize=7)) is None
    assert begun_from_proto(app_pb2.Hello(job=3, run=1, begun=True)) is None


def test_processors_have_a_limit() -> None:
    with pytest.raises(CodecError, match="processors"):
        registration_from_proto(app_pb2.Hello(processors=[2**31]))
    outcome = app_pb2.Outcome(seconds={"join": math.inf})
    with pytest.raises(CodecError, match="join"):
        decision_from_proto(JobId(1), 1, outcome)


def test_nodes_and_ends() -> None:
    register = node_pb2.Register(
        name="n",
        slots=2,
        worlds=[node_pb2.LiveWorld(world="w", job=1, run=1, resize=2, live_processors=[1, 3])],
    )
    event = node_from_proto(register)
    assert (event.cluster, event.address) == ("default", "127.0.0.1")
    assert event.worlds[0].live == from_indices([1, 3])
    assert not event.spare
    assert node_from_proto(node_pb2.Register(name="n", slots=2, spare=True)).spare
    drained = node_pb2.Register(name="n", slots=2, joins_drained=True)
    assert node_from_proto(drained).joins_drained
    gpus = node_pb2.Register(name="n", slots=2, gres={"gpu": 2}, properties=["fast", "a100"])
    described = node_from_proto(gpus)
    assert (described.gres, described.properties) == ((("gpu", 2),), ("a100", "fast"))
    for wrong in (
        node_pb2.Register(slots=1),
        node_pb2.Register(name="n"),
        node_pb2.Register(name="n", slots=1, gres={"a b": 1}),
        node_pb2.Register(name="n", slots=1, gres={"gpu": 1 << 40}),
        node_pb2.Register(name="n", slots=1, properties=["a b"]),
        node_pb2.Register(name="n", slots=1, properties=[f"p{n}" for n in range(100)]),
    ):
        with pytest.raises(CodecError):
            node_from_proto(wrong)
    ends = node_pb2.RanksExited(job=1, exits=[node_pb2.RankExit(processor=3, code=2, signal=9)])
    assert exits_from_proto(ends).exits == (Exit(3, 2, 9),)
    ends.exits[0].node_fault = True
    assert exits_from_proto(ends).exits == (Exit(3, 2, 9, node_fault=True),)


@pytest.mark.parametrize("outcome", list(RequestOutcome))
def test_answers_to_requests_come_back_as_they_were(outcome: RequestOutcome) -> None:
    command = AnswerRequest(JobId(7), 1, 3, outcome, 16, "because")
    message = app_pb2.RequestAnswer.FromString(answer_to_proto(command).SerializeToString())
    assert answer_from_proto(message) == RequestAnswer(3, outcome, 16, "because")


def test_an_unknown_outcome_is_an_error() -> None:
    with pytest.raises(CodecError, match="outcome"):
        answer_from_proto(app_pb2.RequestAnswer(number=1))


def test_hello_says_what_was_asked_for_last() -> None:
    request = app_pb2.RequestSizes(number=2, sizes="4-8", preferred=6, reason="why", deadline_s=5.0)
    hello = app_pb2.Hello(job=7, run=1, request=request)
    sizes = parse_sizes("4-8", 6)
    assert open_request_from_proto(hello) == SizesRequested(JobId(7), 1, 2, sizes, "why", 5.0)
    hello.cancelled = True
    assert open_request_from_proto(hello) == RequestCancelled(JobId(7), 1, 2)
    assert open_request_from_proto(app_pb2.Hello(job=7, run=1, cancelled=True)) is None
    hello.request.deadline_s = 0.0
    hello.cancelled = False
    asked = open_request_from_proto(hello)
    assert isinstance(asked, SizesRequested)
    assert asked.deadline is None


@pytest.mark.parametrize("text", ["grid of file \udcff", "\ud800" * 5000, "x" * (5 << 20)])
def test_words_from_outside_can_be_sent_whatever_they_are(text: str) -> None:
    template = Template(1, 7, 0, Verb.REJECT, reason=text)
    sent = app_pb2.Template.FromString(template_to_proto(template).SerializeToString())
    assert template_from_proto(sent).reason == sanitize_text(text)
    answer = AnswerRequest(JobId(7), 1, 3, RequestOutcome.REFUSED, 16, text)
    assert answer_to_proto(answer).reason == sanitize_text(text)
    assert len(sanitize_text(text)) <= MAX_TEXT
    assert sanitize_text(text)[:13] == text.encode("utf-8", "backslashreplace").decode()[:13]


def test_loads_of_nodes() -> None:
    jobs = [
        node_pb2.JobLoad(job=1, demand_bytes=60, fault_rate=40.0),
        node_pb2.JobLoad(job=2, demand_bytes=30, fault_rate=0.5),
    ]
    message = node_pb2.Load(memory_bytes=80, fault_rate=40.5, interval_s=2.0, jobs=jobs)
    event = load_from_proto(NodeName("n"), message)
    assert (event.name, event.interval_s) == ("n", 2.0)
    assert (event.load.memory, event.load.demand, event.load.idle) == (80.0, 90.0, 0.0)
    assert [each.job for each in event.load.faulting] == [1]
    assert event.load.pressure is None
    message.pressure = 3.0
    assert load_from_proto(NodeName("n"), message).load.pressure == 3.0
    for field in ("fault_rate", "interval_s", "pressure"):
        for number in (-1.0, math.nan, math.inf):
            wrong = node_pb2.Load()
            wrong.CopyFrom(message)
            setattr(wrong, field, number)
            with pytest.raises(CodecError):
                load_from_proto(NodeName("n"), wrong)

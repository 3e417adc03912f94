"""What goes over the wire comes back as it was; nonsense does not come in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.events import ResizeBegun
from pliant.core.ids import JobId, ResizeId
from pliant.core.jobs import Exit
from pliant.core.negotiation import Direction, Item, ItemStatus, Template, Verb
from pliant.core.processors import of
from pliant.protos import app_pb2, node_pb2
from pliant.protos.codec import (
    CodecError,
    begun_from_proto,
    decision_from_proto,
    exits_from_proto,
    node_from_proto,
    registration_from_proto,
    template_from_proto,
    template_to_proto,
)

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
)


@given(templates)
def test_templates_come_back_as_they_were(template: Template) -> None:
    message = app_pb2.Template.FromString(template_to_proto(template).SerializeToString())
    assert template_from_proto(message) == template


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
    assert event.worlds[0].live == of([1, 3])
    for wrong in (node_pb2.Register(slots=1), node_pb2.Register(name="n")):
        with pytest.raises(CodecError):
            node_from_proto(wrong)
    ends = node_pb2.RanksExited(job=1, exits=[node_pb2.RankExit(processor=3, code=2, signal=9)])
    assert exits_from_proto(ends).exits == (Exit(3, 2, 9),)

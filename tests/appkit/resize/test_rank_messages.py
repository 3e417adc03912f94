"""What ranks tell each other comes back from plain data, also from another version."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.appkit.coordinator.messages import (
    CheckpointOrder,
    Decision,
    RequestRecord,
    RequestState,
)
from pliant.appkit.loops import Position
from pliant.appkit.performance.cost_model import ResizeRecord
from pliant.appkit.performance.monitor import PerformanceHistory
from pliant.appkit.performance.timing import Samples
from pliant.appkit.resize.executor import Header, header_from_plain, header_to_plain
from pliant.appkit.resize.preallocate_memory import PreallocateOrder
from pliant.appkit.resize.prefetch_constant_arrays import PrefetchOrder, PrefetchStep
from pliant.appkit.resize.rank_messages import (
    from_plain,
    pack_message,
    to_plain,
    unpack_message,
)
from pliant.appkit.resize.safe_point import JoinState, SafePointMessage
from pliant.core.values.sizes import parse_sizes

ASKED = RequestRecord(
    3, parse_sizes("1-8:pow2", 4), "why", 0.0, RequestState.PARTLY, 2, "busy", True
)
KNOWN = PerformanceHistory(
    {("app.py", 4, 10): {2: Samples([0.1, 0.2], 2, 40)}}, (ResizeRecord(True, 8, 0.1, 0.2),)
)


@pytest.mark.parametrize(
    "order",
    [
        None,
        Decision(5, 2, (1,), (), "secret"),
        CheckpointOrder(4),
        PrefetchOrder(PrefetchStep.WRITE, 5, 4, (), "constant-5"),
        PreallocateOrder(5, 4),
    ],
    ids=str,
)
def test_words_come_back_as_they_were(order: Any) -> None:
    word = SafePointMessage(order, ASKED, KNOWN)
    assert unpack_message(pack_message(word)) == word
    join_state = JoinState(Position(2, 7), None, KNOWN)
    assert from_plain(to_plain(join_state)) == join_state


def test_unknown_fields_are_ignored_and_unknown_classes_are_an_error() -> None:
    told = to_plain(Position(2, 7)) | {"new": 1}
    assert from_plain(told) == Position(2, 7)
    del told["loop"]
    for wrong in (told, {"class": "New"}, {"class": "os"}):
        with pytest.raises(ValueError, match="another version of Pliant"):
            from_plain(wrong)


def test_a_header_is_plain_and_takes_unknown_keys() -> None:
    header = Header(1, 2, (0, 1), 1, [["block", "u"]], b"", None, 0, False)
    told = header_to_plain(header)
    assert isinstance(told, dict)
    assert header_from_plain({**told, "new": 1}) == header
    assert "another version" in str(header_from_plain({"resize": 1}))
    assert header_from_plain("a reason") == "a reason"


def test_other_classes_are_not_told() -> None:
    with pytest.raises(TypeError, match="Header"):
        to_plain(Header(1, 2, (), 1, [], b"", None, 0, False))
    with pytest.raises(TypeError, match="not plain data"):
        pack_message(SafePointMessage(object(), None, None))  # type: ignore[arg-type]


def test_renamed_classes_keep_their_names_in_messages() -> None:
    message = SafePointMessage(PrefetchOrder(PrefetchStep.POLL), ASKED, KNOWN)
    plain = to_plain(message)
    assert (plain["class"], plain["order"]["class"], plain["known"]["class"]) == (
        "Word",
        "Carry",
        "Known",
    )
    assert plain["order"]["step"] == {"class": "Step", "value": "ask"}
    assert to_plain(JoinState(Position(2, 7), None, KNOWN))["class"] == "Luggage"

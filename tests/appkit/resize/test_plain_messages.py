"""What ranks tell each other comes back from plain data, also from another version."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.appkit.coordinator.checkpoint_messages import SaveOrder
from pliant.appkit.coordinator.messages import Asked, Decision, RequestState
from pliant.appkit.loops import Position
from pliant.appkit.performance.cost_model import Move
from pliant.appkit.performance.monitor import Known
from pliant.appkit.performance.timing import Samples
from pliant.appkit.resize.broadcast import Luggage, Word
from pliant.appkit.resize.executor import Header, read_header, write_header
from pliant.appkit.resize.plain_messages import from_plain, pack_word, to_plain, unpack_word
from pliant.appkit.resize.preallocate import MakeRoom
from pliant.appkit.resize.prefetch import Carry, Step
from pliant.core.values.sizes import parse_sizes

ASKED = Asked(3, parse_sizes("1-8:pow2", 4), "why", 0.0, RequestState.PARTLY, 2, "busy", True)
KNOWN = Known({("app.py", 4, 10): {2: Samples([0.1, 0.2], 2, 40)}}, (Move(True, 8, 0.1, 0.2),))


@pytest.mark.parametrize(
    "order",
    [
        None,
        Decision(5, 2, (1,), (), "secret"),
        SaveOrder(4),
        Carry(Step.WRITE, 5, 4, (), "constant-5"),
        MakeRoom(5, 4),
    ],
    ids=str,
)
def test_words_come_back_as_they_were(order: Any) -> None:
    word = Word(order, ASKED, KNOWN)
    assert unpack_word(pack_word(word)) == word
    luggage = Luggage(Position(2, 7), None, KNOWN)
    assert from_plain(to_plain(luggage)) == luggage


def test_unknown_fields_are_ignored_and_unknown_classes_are_an_error() -> None:
    told = to_plain(Position(2, 7)) | {"new": 1}
    assert from_plain(told) == Position(2, 7)
    del told["loop"]
    for wrong in (told, {"class": "New"}, {"class": "os"}):
        with pytest.raises(ValueError, match="another version of Pliant"):
            from_plain(wrong)


def test_a_header_is_plain_and_takes_unknown_keys() -> None:
    header = Header(1, 2, (0, 1), 1, [["block", "u"]], b"", None, 0, False)
    told = write_header(header)
    assert isinstance(told, dict)
    assert read_header({**told, "new": 1}) == header
    assert "another version" in str(read_header({"resize": 1}))
    assert read_header("a reason") == "a reason"


def test_other_classes_are_not_told() -> None:
    with pytest.raises(TypeError, match="Header"):
        to_plain(Header(1, 2, (), 1, [], b"", None, 0, False))
    with pytest.raises(TypeError, match="not plain data"):
        pack_word(Word(object(), None, None))  # type: ignore[arg-type]

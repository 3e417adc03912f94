"""Numbers in sentences."""

from __future__ import annotations

import pytest

from pliant.core.support.plural import plural
from pliant.core.values.sizes import parse_sizes


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 processors"),
        (1, "1 processor"),
        (4, "4 processors"),
        (str(parse_sizes("1")), "1 processor"),
        (str(parse_sizes("1-8")), "1-8 processors"),
        (str(parse_sizes("11")), "11 processors"),
    ],
)
def test_one_is_one_and_all_else_is_many(number: int | str, text: str) -> None:
    assert plural(number, "processor") == text


def test_some_words_have_a_plural_of_their_own() -> None:
    assert [plural(n, "process", "processes") for n in (1, 2)] == ["1 process", "2 processes"]

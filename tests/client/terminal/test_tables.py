from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.client.terminal.tables import clean, shorten, table, table_of_blocks, width


@given(
    st.text(st.characters()) | st.binary().map(lambda data: data.decode(errors="surrogateescape"))
)
def test_clean_text_has_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = clean(text)
    assert shown.isprintable()
    shown.encode("utf-8")
    assert clean(shown) == shown


@pytest.mark.case(53)
def test_escapes_are_shown_and_not_obeyed() -> None:
    assert clean("\x1b[2J\x07a\u202eb") == "\\x1b[2J\\x07a\\u202eb"
    assert clean("café ☕") == "café ☕"


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    text = table(("id", "name"), [(7, "a"), (123, "longer")], right=frozenset({"id"}))
    assert text.splitlines() == [" id  name", "  7  a", "123  longer"]


@pytest.mark.case(52)
def test_wide_characters_count_twice() -> None:
    assert width("日本") == 4
    lines = table(("n", "x"), [("日本", 1), ("ab", 2)]).splitlines()
    assert lines == ["n     x", "日本  1", "ab    2"]


def test_a_table_without_rows_has_its_heads() -> None:
    assert table(("a", "b"), []) == "a  b"


def test_one_cell_stands_for_all_lines_of_its_block() -> None:
    rows = [["a", "é", 1], ["bb", "é", 2], ["ccc", "\x1b", 30]]
    first: list[list[object]] = [["a", "bb"], ["é"], [1, 2]]
    last: list[list[object]] = [["ccc"], ["\x1b"], [30]]
    blocks = [(2, first), (0, []), (1, last)]
    heads, right = ("x", "y", "z"), frozenset({"z"})
    assert table_of_blocks(heads, blocks, right=right) == table(heads, rows, right=right)


def test_shorten() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"

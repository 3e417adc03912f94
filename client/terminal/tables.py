"""Plain tables for terminals, with control characters escaped and columns as wide as needed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def clean(value: object) -> str:
    """Return a text with every unprintable character escaped.

    A terminal could interpret these: control characters, marks that change the direction of
    writing, and bytes that are no text.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def width(text: str) -> int:
    """Return the number of terminal cells of a clean text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, right: frozenset[str] = frozenset()
) -> str:
    """Return a table of rows under their heads; the columns in ``right`` are right-aligned."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(heads)
    return table_of_columns(heads, columns, right=right)


def table_of_columns(
    heads: Sequence[str], columns: Sequence[Sequence[object]], *, right: frozenset[str]
) -> str:
    """Return the cells of each column under its head, as `table` does with rows."""
    filled = [
        _fill([head, *cells], to_right=head in right)
        for head, cells in zip(heads, columns, strict=True)
    ]
    return "\n".join("  ".join(line).rstrip() for line in zip(*filled, strict=True))


def _fill(cells: Sequence[object], *, to_right: bool) -> list[str]:
    """Return the cells of a column, escaped and padded to the same width."""
    texts = [str(cell) for cell in cells]
    whole = "".join(texts)  # one look at a column of 50,000 cells instead of one at each
    if not whole.isprintable():
        texts = [clean(text) for text in texts]
    if whole.isascii():
        size = max(map(len, texts))
        return [text.rjust(size) for text in texts] if to_right else [t.ljust(size) for t in texts]
    widths = [width(text) for text in texts]
    gaps = [" " * (max(widths) - each) for each in widths]
    return [gap + text if to_right else text + gap for text, gap in zip(texts, gaps, strict=True)]


def shorten(text: str, limit: int) -> str:
    """Return a text cut to at most ``limit`` characters, with a mark where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
